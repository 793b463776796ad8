//! Five accounts for CI in five states, over the ends of the daemon: leased by a token, in use, in quarantine, held with a
//! note, and being cleaned.

use poolcounter_testkit::daemon::{Client, Daemon};
use poolcounter_testkit::scratch::Scratch;
use std::fs;

const SETTINGS: &str = "[[members.pool]]\nname = 'ci'\nmax = 5\non_loss = 'ok'\nclean_timeout = 600\n\
                        fixed = ['ci-01', 'ci-02', 'ci-03', 'ci-04', 'ci-05']\n";

/// End of the daemon.
enum End {
    /// SIGKILL, as when its machine is lost.
    Killed,
    /// SIGTERM.
    Stopped,
    /// SIGUSR1.
    Upgraded,
}

struct House {
    scratch: Scratch,
    daemon: Option<Daemon>,
}

impl House {
    fn start(&mut self) {
        let (config, store) = (self.scratch.file("settings.toml"), self.scratch.file("members.db"));
        fs::write(&config, SETTINGS).expect("there is room");
        let (config, store) = (config.display().to_string(), format!("sqlite:{}", store.display()));
        let options = ["--config", &config, "--members-store", &store];
        self.daemon = Some(Daemon::start_with_members(&options));
    }

    fn end(&mut self, end: &End) {
        let mut daemon = self.daemon.take().expect("it runs");
        match end {
            // Dropping it kills it.
            End::Killed => drop(daemon),
            End::Stopped => {
                daemon.signal(nix::sys::signal::Signal::SIGTERM);
                daemon.wait();
            }
            End::Upgraded => {
                daemon.upgrade();
                self.daemon = Some(daemon);
                return;
            }
        }
        self.start();
    }

    fn connect(&self) -> Client {
        Client::to(self.daemon.as_ref().expect("it runs").members())
    }
}

fn word(line: &str, n: usize) -> String {
    line.split(' ').nth(n).unwrap_or_else(|| panic!("{line:?} has no word {n}")).into()
}

fn token_of(line: &str) -> String {
    line.split_once("token=").unwrap_or_else(|| panic!("{line:?} has no token")).1.into()
}

/// Puts the accounts into their states; returns the token of the first and that of the second, and the connections.
fn prepare(house: &House) -> (String, String, Vec<Client>) {
    let [mut job, mut other, mut cleaner] = [(); 3].map(|()| house.connect());
    assert_eq!(cleaner.ask("CLEAN ci"), "OK");
    let token = token_of(&other.ask("TAKE ci member=ci-01 lease=600"));
    assert_eq!(job.ask("IDENTIFY build-17"), "OK");
    let resumed = token_of(&job.ask("TAKE ci member=ci-02 resume"));
    let lease = word(&other.ask("TAKE ci member=ci-03"), 1);
    assert_eq!(other.ask(&format!("RETURN {lease} FAIL")), "RETURNED");
    assert_eq!(other.ask("HOLD ci ci-04 3600 post-mortem"), "OK");
    let lease = word(&other.ask("TAKE ci member=ci-05"), 1);
    assert_eq!(other.ask(&format!("RETURN {lease}")), "RETURNED");
    assert_eq!(cleaner.line(), "!CLEAN ci ci-05");
    (token, resumed, vec![job, other, cleaner])
}

#[test]
fn accounts_keep_their_states_over_each_end_of_the_daemon() {
    for end in [End::Killed, End::Stopped, End::Upgraded] {
        let mut house = House { scratch: Scratch::new(), daemon: None };
        house.start();
        let (token, resumed, _clients) = prepare(&house);
        house.end(&end);
        let mut client = house.connect();
        assert_eq!(client.ask("TAKE ci"), "NO_MEMBERS at_capacity", "nobody gets an account of another");
        let states: Vec<String> = {
            client.send(b"MEMBERS ci\n");
            (0..6).map(|_| client.line()).take_while(|line| !line.is_empty()).collect()
        };
        let words: Vec<String> = states.iter().map(|line| word(line, 1)).collect();
        assert_eq!(words, ["in_use", "in_use", "quarantined", "held", "cleaning"], "{states:?}");
        assert!(states[1].contains(" build-17 ") && states[3].contains(" why=post-mortem "), "{states:?}");
        assert_eq!(client.ask(&format!("RENEW {resumed}")), "RENEWED");
        assert_eq!(client.ask(&format!("RENEW {token}")), "RENEWED");
        assert_eq!(client.ask(&format!("RETURN {token} FAIL")), "RETURNED");
    }
}
