use super::*;

fn request(line: &str) -> Request<'_> {
    match parse(line.as_bytes()) {
        Ok(Line::Request(request)) => request,
        other => panic!("{line} is no request but {other:?}"),
    }
}

#[test]
fn a_take_has_its_options() {
    let Request::Take(take) = request("TAKE  db 1.5 gpu=yes n=3 pri=0 lease=60 os=a=b") else { panic!("is a take") };
    assert_eq!((take.from, take.timeout), (From::Pool(b"db"), Span::from_millis(1_500)));
    assert_eq!((take.count, take.priority, take.lease), (Some(3), 0, Some(Span::from_secs(60))));
    let pair = |name: &[u8], value: &[u8]| (Box::from(name), Box::from(value));
    assert_eq!(
        take.filter.map(|filter| filter.attributes.clone()),
        Some(vec![pair(b"gpu", b"yes"), pair(b"os", b"a=b")])
    );
    let Request::Take(take) = request("TAKEGROUP all member=m") else { panic!("is a take") };
    assert_eq!((take.from, take.timeout, take.count, take.priority), (From::Group(b"all"), Span::ZERO, None, 5));
    let Request::Take(take) = request("TAKE db") else { panic!("is a take") };
    assert_eq!(take.filter, None);
}

#[test]
fn usual_lines_are_read_as_any_line() {
    assert!(
        ["TAKE p 60", "TAKE p 1.5", "RETURN 1790000000000001"]
            .iter()
            .all(|line| parse_usual(line.as_bytes()).is_some())
    );
    let names = ["", "p", "a\tb", "a\0b", &"n".repeat(LONGEST_NAME), &"n".repeat(LONGEST_NAME + 1)];
    let numbers = ["", "0", "60", "1.5", "x", "1234567a90", "1790000000000001", "resume", "a=b", "12345678 OK"];
    let long = ["18446744073709551615", "18446744073709551616", "99999999999999999999x", "000000000000000000000007"];
    let token = ["0123456789abcdef0123456789abcdef"];
    for word in ["TAKE", "TAKE ", "RETURN", "RETURN ", "take"] {
        for (name, space) in names.iter().flat_map(|name| ["", " ", "  "].map(|space| (name, space))) {
            for number in numbers.iter().chain(&long).chain(&token) {
                let line = format!("{word} {name}{space}{number}");
                assert_eq!(parse(line.as_bytes()), parse_any(line.as_bytes()), "{line:?}");
            }
        }
    }
}

/// Commands, each with wrong parameters between bars.
const MALFORMED: &[&str] = &[
    "TAKE:|db x|db 1 2|db 1e3|db -1|db n=0|db n=|db pri=10|db pri=x|db lease=0|db lease=|db token=x|db gpu=|db =x|\
     db n=1 n=1|db gpu=1 gpu=2|db member=m n=2|db member=!m|a\0b",
    "TAKEGROUP:",
    "RETURN:|x|1 ok|1 OK x|18446744073709551616",
    "RENEW:1|0123456789abcdef0123456789abcdeg|0123456789abcdef0123456789abcdef 0",
    "CANCEL:x",
    "BYE:x",
    "IDENTIFY:|a b",
    "POOL:|db|db 1|db 1 x|db 1 2 3|db 1 2 x=1|db 1 2 init=1|db 1 2 queue=|db 1 2 order=x|db 1 2 on_loss=x|\
     db 1 2 max_age=1e3|db 1 2 queue=1 queue=1",
    "RECONFIGURE:|db max",
    "RMPOOL:|db now",
    "PROVIDE:|db x|db 1 2",
    "CLEAN:|db 1",
    "STARTED:1|x m|1 !m|1 m gpu|1 m gpu=|1 m n=1|1 m token=1|1 m gpu=1 gpu=1",
    "FAILED:|x",
    "STOPPED:|a b",
    "OFFER:db|db m x",
    "WITHDRAW:db|db m LATER",
    "ADD:db",
    "DEL:db",
    "REPAIR:db",
    "HOLD:db m|db m x",
    "FREE:db",
    "TAKEBACK:|x",
    "UTILIZATION:|a b",
    "MEMBERS:|db limit=x|db after=|db x",
    "WAITERS:|db limit=x|db after=m|db limit=1 limit=2",
    "POOLS:x",
];

#[test]
fn malformed_lines_are_refused_with_a_reason() {
    let long = "x".repeat(256);
    let lines_of = |(command, all): (&'static str, &'static str)| {
        all.split('|').map(move |rest| if rest.is_empty() { command.into() } else { format!("{command} {rest}") })
    };
    let all = MALFORMED.iter().filter_map(|row| row.split_once(':')).flat_map(lines_of);
    for line in all.chain([format!("TAKE {long}"), format!("TAKE db x={long}")]) {
        assert!(matches!(refused(&line), Err(Refusal::BadSyntax(_))), "{line}: {:?}", parse(line.as_bytes()));
    }
    for line in ["", " TAKE db", "take db", "TAKES db", "!START db 1"] {
        assert_eq!(parse(line.as_bytes()), Err(Refusal::BadCommand), "{line}");
    }
}

/// Returns the error of a line. A `STARTED` with the number of a start has the error of its member.
fn refused(line: &str) -> Result<(), Refusal> {
    match parse(line.as_bytes())? {
        Line::Request(Request::Started { named, .. }) => named.map(drop),
        _ => Ok(()),
    }
}

#[test]
fn attributes_have_a_bound() {
    let many = |n: usize, value: &str| (0..n).map(|n| format!(" a{n}={value}")).collect::<String>();
    assert_eq!(refused(&format!("STARTED 1 m{}", many(16, "x"))), Ok(()));
    assert_eq!(refused(&format!("STARTED 1 m{}", many(17, "x"))), Err(Refusal::TooMany));
    assert!(parse(format!("OFFER db m{}", many(4, &"x".repeat(254))).as_bytes()).is_ok());
    assert_eq!(parse(format!("OFFER db m{}", many(4, &"x".repeat(255))).as_bytes()), Err(Refusal::TooMany));
}

#[test]
fn text_for_people_is_the_rest_of_the_line() {
    assert_eq!(request("FAILED 7 out of memory "), Request::Failed { start: 7, text: b"out of memory" });
    assert_eq!(request("FAILED 7"), Request::Failed { start: 7, text: b"" });
    assert_eq!(request("TAKEBACK 18446744073709551615 by me"), Request::TakeBack { lease: u64::MAX, note: b"by me" });
}

#[test]
fn a_lease_is_a_number_or_a_token() {
    for (line, number) in [("RETURN 18446744073709551615", u64::MAX), ("RETURN 00000000000000000000007", 7)] {
        assert_eq!(request(line), Request::Return { lease: LeaseName::Number(number), condition: Condition::Ok });
    }
    assert_eq!(request("RETURN 5"), Request::Return { lease: LeaseName::Number(5), condition: Condition::Ok });
    let token = LeaseName::Token([0xab; 16]);
    let line = format!("RETURN {} FAIL", "aB".repeat(16));
    assert_eq!(request(&line), Request::Return { lease: token, condition: Condition::Fail });
}

#[test]
fn every_setting_is_read_and_checked() {
    for key in Key::ALL {
        let good: &[u8] = match key.kind() {
            Kind::Order => b"fifo",
            Kind::OnLoss => b"ok",
            _ => b"7",
        };
        assert!(parse_change(*key, good).is_ok_and(|change| change.key() == *key), "{}", key.name());
        let is_none = matches!(key.kind(), Kind::Group | Kind::Optional);
        assert_eq!(parse_change(*key, b"").is_ok(), is_none, "{} without a value", key.name());
    }
}
