//! Plays conversations against a target: a server of some kind, with clients, and time that can pass.

use super::leases::Leases;
use super::pattern::Pattern;
use super::protocol::Protocol;
use super::script::{Action, Scenario, Script, Step, Then};
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// Server with clients. Each call returns once its full effect has happened.
pub trait Target {
    /// Client of the target.
    type Client;

    /// Connects the client of this number.
    fn connect(&mut self, number: u32) -> Self::Client;

    /// Sends bytes of the client in one piece, and then ends the connection as `then` says, before the server can
    /// answer.
    fn send(&mut self, client: &mut Self::Client, bytes: &[u8], then: Then);

    /// Closes the client's sending side.
    fn finish(&mut self, client: &mut Self::Client);

    /// Closes the client's connection.
    fn close(&mut self, client: &mut Self::Client);

    /// Closes the client's connection; the next step happens before the server notices.
    fn close_unseen(&mut self, client: &mut Self::Client);

    /// Resets the client's connection.
    fn reset(&mut self, client: &mut Self::Client);

    /// Lets time pass.
    fn pass(&mut self, time: Duration);

    /// Lets something happen to the server. Returns whether it ends every connection.
    ///
    /// # Errors
    ///
    /// The reason for which it cannot happen.
    fn happen(&mut self, words: &str) -> Result<bool, String> {
        Err(format!("\"{words}\" cannot happen here"))
    }

    /// Returns the next reply to the client: of the pools, a line without its line feed.
    ///
    /// # Errors
    ///
    /// Description of the bytes that came instead.
    fn reply(&mut self, client: &mut Self::Client) -> Result<Vec<u8>, String>;

    /// Returns the bytes that the client has received beyond the replies taken.
    fn rest(&mut self, client: &mut Self::Client) -> Vec<u8>;

    /// Returns whether the client sees the end of the connection.
    fn is_ended(&mut self, client: &mut Self::Client) -> bool;

    /// Checks, once every client has disconnected, that the server remembers none.
    ///
    /// # Errors
    ///
    /// Description of the remaining state.
    fn check_empty(&mut self) -> Result<(), String>;

    /// Returns by how much a duration in a reply may be shorter, and longer, than the script says.
    fn tolerance(&self) -> (Duration, Duration);
}

/// Client of a scenario.
struct Actor<C> {
    client: C,
    /// True while the connection is open on the client's side.
    is_present: bool,
}

/// Plays all scenarios of a file below the root of the repository, each against a target of its own.
///
/// # Panics
///
/// If one goes another way.
pub fn play_file<S: Target>(name: &str, protocol: Protocol, mut target: impl FnMut(&Scenario) -> S) {
    let text = fs::read_to_string(name).expect("the script is there");
    let script = Script::parse(name, protocol, &text).unwrap_or_else(|wrong| panic!("{wrong}"));
    let play_one = |scenario| play(&script, scenario, &mut target(scenario)).err();
    let failures: Vec<String> = script.scenarios.iter().filter_map(play_one).collect();
    assert!(!script.scenarios.is_empty(), "{name} has no conversation");
    assert!(failures.is_empty(), "{} conversations went another way:\n{}", failures.len(), failures.join("\n"));
}

/// Plays a scenario to its end. After that, no client may have received more than the scenario says.
///
/// # Errors
///
/// One sentence that begins with the file and the line of the step that failed.
pub fn play<S: Target>(script: &Script, scenario: &Scenario, target: &mut S) -> Result<(), String> {
    let mut actors: BTreeMap<u32, Actor<S::Client>> = BTreeMap::new();
    let mut leases = Leases::default();
    for step in &scenario.steps {
        take((script.protocol, scenario), step, &mut leases, &mut actors, target)
            .map_err(|wrong| format!("{}:{step}: {wrong}", script.name))?;
    }
    let at_end = |wrong| format!("{}: at the end of \"{}\": {wrong}", script.name, scenario.title);
    for (number, actor) in actors.iter_mut().filter(|(_, actor)| actor.is_present) {
        expect_nothing(target, &mut actor.client).map_err(|wrong| at_end(format!("client {number}: {wrong}")))?;
    }
    for actor in actors.values_mut().filter(|actor| actor.is_present) {
        target.close(&mut actor.client);
    }
    target.check_empty().map_err(at_end)
}

fn take<S: Target>(
    (protocol, scenario): (Protocol, &Scenario),
    step: &Step,
    leases: &mut Leases,
    actors: &mut BTreeMap<u32, Actor<S::Client>>,
    target: &mut S,
) -> Result<(), String> {
    if protocol.is_written_in_full() && !step.action.is_expectation() {
        for (number, actor) in actors.iter_mut().filter(|(_, actor)| actor.is_present) {
            expect_nothing(target, &mut actor.client).map_err(|wrong| format!("before it client {number} {wrong}"))?;
        }
    }
    if let Action::Happen(words) = &step.action {
        if target.happen(words)? {
            actors.clear();
        }
        return Ok(());
    }
    let (Action::Send(number, ..)
    | Action::Trickle(number, _)
    | Action::Finish(number)
    | Action::Close(number)
    | Action::CloseUnseen(number)
    | Action::Reset(number)
    | Action::Expect(number, _)
    | Action::ExpectAmong(number, _)
    | Action::ExpectNothing(number)
    | Action::ExpectEnd(number)) = step.action
    else {
        let Action::Pass(time) = step.action else { unreachable!("every other action is some client's") };
        target.pass(time);
        return Ok(());
    };
    let actor = actors.entry(number).or_insert_with(|| Actor { client: target.connect(number), is_present: true });
    if !actor.is_present {
        return Err(format!("client {number} has gone"));
    }
    let client = &mut actor.client;
    let protocol = scenario.guest(number).map_or(protocol, |guest| guest.protocol);
    match &step.action {
        Action::Send(_, bytes, then) => {
            target.send(client, &said(protocol, leases, bytes), *then);
            actor.is_present = *then != Then::Close;
        }
        Action::Trickle(_, bytes) => {
            said(protocol, leases, bytes).iter().for_each(|byte| target.send(client, &[*byte], Then::Stay));
        }
        Action::Finish(_) => target.finish(client),
        Action::Close(_) => {
            target.close(client);
            actor.is_present = false;
        }
        Action::CloseUnseen(_) => {
            target.close_unseen(client);
            actor.is_present = false;
        }
        Action::Reset(_) => {
            target.reset(client);
            actor.is_present = false;
        }
        Action::Expect(_, pattern) => {
            let reply = told(protocol, leases, target.reply(client)?);
            if !is_as_said(pattern, &reply, target.tolerance()) {
                return Err(format!("got {}", protocol.describe(&reply)));
            }
        }
        Action::ExpectAmong(_, pattern) => loop {
            let reply = told(protocol, leases, target.reply(client)?);
            if is_as_said(pattern, &reply, target.tolerance()) {
                break;
            }
            if protocol.ends_list(&reply) {
                return Err("the list ended without it".into());
            }
        },
        Action::ExpectNothing(_) => expect_nothing(target, client)?,
        Action::ExpectEnd(_) if target.is_ended(client) => expect_nothing(target, client)?,
        Action::ExpectEnd(_) => return Err("the connection goes on".into()),
        Action::Pass(_) | Action::Happen(_) => {}
    }
    Ok(())
}

fn said(protocol: Protocol, leases: &Leases, bytes: &[u8]) -> Vec<u8> {
    if protocol == Protocol::Members { leases.said(bytes) } else { bytes.to_vec() }
}

fn told(protocol: Protocol, leases: &mut Leases, reply: Vec<u8>) -> Vec<u8> {
    if protocol == Protocol::Members { leases.told(&reply) } else { reply }
}

fn expect_nothing<S: Target>(target: &mut S, client: &mut S::Client) -> Result<(), String> {
    let rest = target.rest(client);
    if rest.is_empty() { Ok(()) } else { Err(format!("got {:?}", rest.escape_ascii().to_string())) }
}

fn is_as_said(pattern: &Pattern, reply: &[u8], tolerance: (Duration, Duration)) -> bool {
    pattern.matches(reply) || matches!(&pattern.0[..], [line] if is_about(line, reply, tolerance))
}

/// Returns whether two lines name the same duration, within the tolerance for real clocks.
fn is_about(want: &[u8], got: &[u8], (shorter, longer): (Duration, Duration)) -> bool {
    let (Some((name, want)), Some((got_name, got))) = (duration_of(want), duration_of(got)) else { return false };
    name == got_name && want <= got + shorter && got <= want + longer
}

/// Returns the name and the value of a line such as `waiting time: 1m 2.500000s`.
fn duration_of(line: &[u8]) -> Option<(&str, Duration)> {
    let (name, value) = std::str::from_utf8(line).ok()?.split_once(": ")?;
    let mut total = Duration::ZERO;
    for word in value.replace(" days", "d").split([' ', ',']).filter(|word| !word.is_empty()) {
        let (number, unit) = word.split_at(word.len() - 1);
        let seconds = match unit {
            "d" => 86_400,
            "h" => 3_600,
            "m" => 60,
            "s" => 1,
            _ => return None,
        };
        total += Duration::try_from_secs_f64(number.parse().ok()?).ok()? * seconds;
    }
    Some((name, total))
}
