//! A day of a CI: 40 jobs of three steps share 12 accounts. Of two providers one is broken, and one is cut off and
//! stopped for a time: `CI_CUT_S` seconds, over which the jobs spread.

use super::members_shell::{lines_of, provide, server, start_program, states};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use poolcounter_testkit::cut::CutProxy;
use poolcounter_testkit::daemon::until;
use poolcounter_testkit::random::setting;
use poolcounter_testkit::running::Running;
use poolcounter_testkit::scratch::Scratch;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const JOBS: usize = 40;
/// Number of jobs that run at a time: more than there are accounts.
const RUNNERS: usize = 16;
/// Number of jobs per failure of an account.
const BROKEN: usize = 7;

/// Returns for how long a provider is cut off.
fn cut_time() -> Duration {
    Duration::from_secs(setting("CI_CUT_S", 3))
}

/// Command that makes an account, which is a directory and a process; both end with `--stop`.
const START: &str = "mkdir m$POOL_START_ID; echo $$ >> pids; echo m$POOL_START_ID region=eu; exec sleep 1000";

/// Runs a step, which must succeed without complaints, and returns its output.
fn step(server: &str, words: &[&str]) -> String {
    let ended = start_program(&[words, &["-s", server]].concat()).finish();
    assert_eq!((ended.status, &*ended.stderr), (Some(0), ""), "{words:?}");
    ended.stdout
}

fn play_job(server: &str, scratch: &Scratch, number: usize) {
    let name = format!("job-{number}");
    let (pause, patience) = (cut_time() / 20, (cut_time().as_secs() + 60).to_string());
    let told = step(
        server,
        &[
            &["take", "p", "--keep", "--lease", "60", "--format", "env", "-t", &patience][..],
            &["--retry", "--name", &name, "-a", "region=eu"],
        ]
        .concat(),
    );
    let told: BTreeMap<&str, &str> = told.lines().filter_map(|line| line.split_once('=')).collect();
    // No other job uses this account.
    let busy = scratch.file(&format!("busy-{}", told["POOL_MEMBER"]));
    File::create_new(&busy).expect("no two jobs have the same account");
    thread::sleep(pause);
    step(server, &["members", "renew", "p", told["POOL_TOKEN"]]);
    thread::sleep(pause);
    fs::remove_file(&busy).expect("is there");
    let condition = if number.is_multiple_of(BROKEN) { "fail" } else { "ok" };
    step(server, &["members", "return", "p", told["POOL_TOKEN"], condition]);
}

#[test]
fn forty_jobs_share_twelve_accounts() {
    let (server, mut operator) =
        server(&format!("1 12 queue=100 provider_grace={} start_timeout=10", cut_time().as_secs() + 30));
    let scratch = Scratch::new();
    let broken = provide(&server, &scratch, "echo 'Cannot connect to the daemon' >&2; exit 1", &[]);
    let proxy = CutProxy::to(server.address.parse().expect("is an address"));
    let start = format!("cd {}; {START}", scratch.file("").display());
    let stop = format!("rmdir {}/$POOL_MEMBER", scratch.file("").display());
    let through = ["provide", "p", "-s", &proxy.address.to_string(), "--start", &start, "--stop", &stop];
    let provider = start_program(&through);
    until("one provider is well", || states(&mut operator).ends_with(" free"));
    let (next, address) = (AtomicUsize::new(0), &*server.address);
    thread::scope(|scope| {
        for _ in 0..RUNNERS {
            scope.spawn(|| {
                while let number @ 0..JOBS = next.fetch_add(1, Ordering::Relaxed) {
                    play_job(address, &scratch, number);
                }
            });
        }
        scope.spawn(|| cut_off(&proxy, &provider));
    });
    let figures = operator.ask("UTILIZATION p");
    assert!(figures.contains(" in_use 0 ") && figures.contains(" queued 0 "), "{figures}");
    for one in [&provider, &broken] {
        one.signal(Signal::SIGUSR2);
    }
    for one in [provider, broken] {
        let ended = one.finish();
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    }
    until("no member is left", || states(&mut operator).is_empty());
    let left: Vec<_> =
        fs::read_dir(scratch.file("")).expect("is there").map(|entry| entry.expect("is one").file_name()).collect();
    assert_eq!(left, ["pids"], "no account is left");
    for pid in lines_of(&scratch.file("pids")) {
        let pid = Pid::from_raw(pid.parse().expect("is a number"));
        assert!(kill(pid, None).is_err(), "no process is left");
    }
}

/// Cuts the provider's connection without the server's notice, and stops the provider for a while.
fn cut_off(proxy: &CutProxy, provider: &Running) {
    thread::sleep(Duration::from_millis(700));
    provider.signal(Signal::SIGSTOP);
    proxy.cut();
    thread::sleep(cut_time());
    provider.signal(Signal::SIGCONT);
    thread::sleep(Duration::from_millis(500));
    proxy.forget();
}
