//! Requests of clients of the pools: lines that make sense, and lines that do not.

use super::random::Random;

/// Kind of a line.
#[derive(Clone, Copy)]
enum Line {
    Acquire,
    Release,
    ReleaseKey,
    OddAcquire,
    Stats,
    Odd,
    Long,
}

const LINES: [(Line, usize); 7] = [
    (Line::Acquire, 20),
    (Line::Release, 9),
    (Line::ReleaseKey, 8),
    (Line::OddAcquire, 3),
    (Line::Stats, 3),
    (Line::Odd, 1),
    (Line::Long, 1),
];
const KEYS: [&[u8]; 5] = [b"k", b"ArticleView:a%20b", b"\xff\xfe\r\t", b"K", b"hold=1"];
const TIMEOUTS: [&str; 9] = ["0", "0.001", "0.25", "1", "1", "2", "5", "60", "86400"];
const HOLDS: &str = "|||hold=0.001|hold=1|hold=90 who=a@b:1|who=somebody|keep=1|keep=5 hold=9|keep=2 hold=1";
const ALSO: &str = "|||also=user:1:9|also=user:2:3|also=k:1:9|also=all:3:50 also=user:1:9|also=K:1:2";
const ODD_COMMANDS: [&str; 4] = ["ACQ4ME ", "ACQ4ANY ", "ACQ4ME   ", "ACQ4ANY  "];
const ODD_NUMBERS: [&str; 12] =
    ["0", "000", "x", "", "-1", "+1", "1x", "0001", "4294967295", "4294967297", "99999999999999999999", "1.0"];
const ODD_TIMEOUTS: &str = "|b'0'|-1|.|5.|.5|0.0001|1.0010|00.09991|2.00000000000000000000001|1.x|1e3|\
    4294967297|99999999999999999999|hold=1";
const ODD_ENDS: &str = "keep=x|keep=0.0001 keep=1 junk|also=|also=a|also=:1:1|also=a:0:1|also=a:1:x|also=a:b:1:1 also=a:b:2:2|\
    also=a:1:1 also=b:1:1 also=c:1:1 also=d:1:1|also=a:1:1 also=b:1:1 also=c:1:1 also=d:1:1 also=e:1:1||junk|\
    hold=0|hold=0 hold=1|hold=x hold=0.5|hold= |HOLD=1| hold=.0001 x|hold=1.5|who= who=a=b|\
    who=more-than-sixty-four-bytes-are-no-name-as-they-would-make-the-lists-too-wide";
/// Arguments of STATS. KEYS and HOLDERS are left out: their lists are not modelled.
const STATS: &str = "TYPES|types||FULL|full |UPTIME|Total_Acquired|total_acquired|hashtable_entries|WAITING_workers|\
    processing_workers|failed_sends|gained time|uptime x|waiting|\0";
const ODD: [&[u8]; 12] = [
    b"",
    b" ",
    b"\r",
    b"release",
    b"RELEASEXYZ",
    b" RELEASE",
    b"ACQ4MEk 1 1 1",
    b"ACQ4ME\tk 1 1 1",
    b"STATSFULL",
    b"\0",
    b"ACQ4ANY a\0b 1 1 1",
    b"\xff\r\r",
];

/// Returns one of the words between bars.
fn one_of(random: &mut Random, words: &'static str) -> &'static str {
    random.pick(&words.split('|').collect::<Vec<_>>())
}

/// Returns one of the words, with a space before it if it is not empty.
fn behind(random: &mut Random, words: &'static str) -> String {
    let word = one_of(random, words);
    if word.is_empty() { String::new() } else { format!(" {word}") }
}

/// Random generator of lines.
pub struct Chatter {
    lines: Vec<(Line, usize)>,
    keys: usize,
    workers: usize,
    max_queue: usize,
    max_line: usize,
}

impl Chatter {
    /// Returns a generator with random weights; kinds with weight 0 never occur.
    pub fn new(random: &mut Random, max_line: usize) -> Self {
        Chatter {
            lines: random.swarm(&LINES),
            keys: 1 + random.below(KEYS.len()),
            workers: random.pick(&[1, 1, 1, 3]),
            max_queue: random.pick(&[3, 9, 50]),
            max_line,
        }
    }

    /// Returns one line with its end.
    pub fn line(&self, random: &mut Random) -> Vec<u8> {
        let key = KEYS[random.below(self.keys)];
        let mut line = match random.weigh(&self.lines) {
            Line::Acquire => self.acquire(random, key),
            Line::Release => b"RELEASE".to_vec(),
            Line::ReleaseKey => [b"RELEASE ", key].concat(),
            Line::OddAcquire => odd_acquire(random, key),
            Line::Stats => format!("STATS{}", behind(random, STATS)).into(),
            Line::Odd => random.pick(&ODD).to_vec(),
            Line::Long => self.long(random),
        };
        line.extend(random.pick(&[&b"\n"[..], b"\n", b"\n", b"\r\n"]));
        line
    }

    fn acquire(&self, random: &mut Random, key: &[u8]) -> Vec<u8> {
        let command = random.pick(&["ACQ4ME", "ACQ4ANY", "ACQ4ANY"]);
        let (workers, max_queue) = (1 + random.below(self.workers), 1 + random.below(self.max_queue));
        let (timeout, hold) = (random.pick(&TIMEOUTS), behind(random, HOLDS));
        let also = behind(random, ALSO);
        let numbers = format!(" {workers} {max_queue} {timeout}{hold}{also}");
        [command.as_bytes(), b" ", key, numbers.as_bytes()].concat()
    }

    /// Returns a line of about the maximum length; most are malformed.
    fn long(&self, random: &mut Random) -> Vec<u8> {
        let len = self.max_line + 1 - random.below(4).min(self.max_line);
        let start = random.pick(&["", "RELEASE ", "ACQ4ME k 1 9 1 "]).as_bytes();
        [start, &vec![b'x'; len.saturating_sub(start.len())]].concat()
    }
}

fn odd_acquire(random: &mut Random, key: &[u8]) -> Vec<u8> {
    let mut number = || if random.once_in(2) { "2" } else { random.pick(&ODD_NUMBERS) };
    let (workers, max_queue) = (number(), number());
    let (timeout, end) = (one_of(random, ODD_TIMEOUTS), behind(random, ODD_ENDS));
    let fields = format!(" {workers}  {max_queue} {timeout}{end}");
    let line = [random.pick(&ODD_COMMANDS).as_bytes(), key, fields.as_bytes()].concat();
    let len = if random.once_in(8) { random.below(line.len()) } else { line.len() };
    line[..len].to_vec()
}
