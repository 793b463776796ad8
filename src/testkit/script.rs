//! Conversations as text: a file of scenarios, read into typed steps. This module knows neither the player nor the
//! meaning of the bytes. The file's own header explains the notation.

use super::pattern::Pattern;
use super::protocol::Protocol;
use std::fmt;
use std::time::Duration;

/// A file of scenarios.
#[derive(Debug)]
pub struct Script {
    /// Its name, for messages.
    pub name: String,
    pub protocol: Protocol,
    pub scenarios: Vec<Scenario>,
}

/// One conversation, from the start of a server until every client has disconnected.
#[derive(Debug, Default)]
pub struct Scenario {
    pub title: String,
    /// Options of the server.
    pub options: Vec<String>,
    /// Reason for which it cannot be played in real time.
    pub virtual_only: Option<String>,
    /// Reason for which the original daemon is known to fail it.
    pub differs: Option<String>,
    /// Reason for which the original daemon is not tested: it lacks the feature.
    pub ours: Option<String>,
    /// First of the clients that are operators at the socket of the administration, in virtual time only.
    pub operators: Option<u32>,
    /// Pattern of keys and their ceiling, in virtual time only.
    pub ceiling: Option<String>,
    /// Services of the clients, from client 1 on, in virtual time only; none if all speak the protocol of the file.
    pub clients: Vec<Guest>,
    pub steps: Vec<Step>,
}

/// Client of a service, at an address that the rules of access know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guest {
    pub protocol: Protocol,
    pub is_operator: bool,
}

/// One line of a conversation.
#[derive(Debug)]
pub struct Step {
    /// Its number in the file, counted from 1.
    pub line: usize,
    pub text: String,
    pub action: Action,
}

/// Action of a step. Clients go by the numbers of the script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// The client sends bytes in one piece.
    Send(u32, Vec<u8>, Then),
    /// The client sends bytes one at a time.
    Trickle(u32, Vec<u8>),
    /// The client closes its sending side.
    Finish(u32),
    /// The client closes the connection.
    Close(u32),
    /// The client closes the connection, and the next step is taken before the server notices.
    CloseUnseen(u32),
    /// The client resets the connection.
    Reset(u32),
    /// The next reply that the client receives is this one.
    Expect(u32, Pattern),
    /// The client receives this reply as one line of a list.
    ExpectAmong(u32, Pattern),
    /// The client has received nothing more.
    ExpectNothing(u32),
    /// The server closes the connection.
    ExpectEnd(u32),
    /// Time passes.
    Pass(Duration),
    /// Something else happens to the server, in words that its target knows.
    Happen(String),
}

/// Action of a client right after it has sent something, before the server can answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// The conversation waits.
    Stay,
    /// The client closes its sending side.
    Finish,
    /// The client closes the connection.
    Close,
}

impl Script {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// One sentence that begins with the file's name and the number of the line that cannot be parsed.
    pub fn parse(name: &str, protocol: Protocol, text: &str) -> Result<Script, String> {
        let mut scenarios: Vec<Scenario> = Vec::new();
        for (n, line) in text.lines().enumerate() {
            let line_number = n + 1;
            read_line(&mut scenarios, protocol, line, line_number)
                .map_err(|wrong| format!("{name}:{line_number}: {wrong}"))?;
        }
        match scenarios.iter().find(|scenario| scenario.steps.is_empty()) {
            Some(empty) => Err(format!("{name}: nothing happens in \"{}\"", empty.title)),
            None => Ok(Script { name: name.into(), protocol, scenarios }),
        }
    }
}

impl Scenario {
    /// Returns whether time passes in it.
    pub fn sleeps(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.action, Action::Pass(_)))
    }

    /// Returns the guest of this number, if the scenario has them.
    pub fn guest(&self, client: u32) -> Option<Guest> {
        self.clients.get((client as usize).checked_sub(1)?).copied()
    }
}

impl Guest {
    /// Reads `pools` or `pools@operator`.
    fn parse(word: &str) -> Result<Guest, String> {
        let (service, is_operator) = word.strip_suffix("@operator").map_or((word, false), |service| (service, true));
        let protocol = Protocol::ALL.into_iter().find(|protocol| protocol.kind() == service);
        Ok(Guest { protocol: protocol.ok_or_else(|| format!("\"{service}\" is no service"))?, is_operator })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.text)
    }
}

fn read_line(scenarios: &mut Vec<Scenario>, protocol: Protocol, line: &str, number: usize) -> Result<(), String> {
    if let Some(title) = line.strip_prefix("## ") {
        scenarios.push(Scenario { title: title.trim().into(), ..Scenario::default() });
        return Ok(());
    }
    if line.trim().is_empty() || line.starts_with('#') {
        return Ok(());
    }
    let scenario = scenarios.last_mut().ok_or("a scenario begins with \"## \" and its title")?;
    if line.starts_with(|c: char| c.is_ascii_lowercase()) {
        return read_property(scenario, line);
    }
    let action = Action::parse(|client| scenario.guest(client).map_or(protocol, |guest| guest.protocol), line)?;
    scenario.steps.push(Step { line: number, text: line.into(), action });
    Ok(())
}

fn read_property(scenario: &mut Scenario, line: &str) -> Result<(), String> {
    let (name, value) = line.split_once(": ").ok_or("a property is a name, a colon, a space and a value")?;
    if !scenario.steps.is_empty() {
        return Err(format!("\"{name}\" comes before the first step"));
    }
    match name {
        "options" => scenario.options = value.split_whitespace().map(String::from).collect(),
        "virtual" => scenario.virtual_only = Some(value.into()),
        "differs" => scenario.differs = Some(value.into()),
        "ours" => scenario.ours = Some(value.into()),
        "ceiling" => {
            scenario.ceiling = Some(value.into());
            scenario.virtual_only = Some("ceilings are no options".into());
        }
        "clients" => {
            scenario.clients = value.split_whitespace().map(Guest::parse).collect::<Result<_, _>>()?;
            scenario.virtual_only = Some("there are several services".into());
        }
        "operators" => {
            scenario.operators = Some(value.parse().map_err(|_| format!("\"{value}\" is no number of a client"))?);
            scenario.virtual_only = Some("the administration is played in virtual time".into());
        }
        _ => return Err(format!("\"{name}\" is no property of a scenario")),
    }
    Ok(())
}

impl Action {
    /// Returns whether the step only checks something.
    pub fn is_expectation(&self) -> bool {
        matches!(self, Action::Expect(..) | Action::ExpectAmong(..) | Action::ExpectNothing(_) | Action::ExpectEnd(_))
    }

    /// Returns whether a client sends bytes in the step that contain this text.
    pub fn says(&self, text: &[u8]) -> bool {
        let (Action::Send(_, bytes, _) | Action::Trickle(_, bytes)) = self else { return false };
        bytes.windows(text.len()).any(|window| window == text)
    }

    fn parse(protocol_of: impl Fn(u32) -> Protocol, line: &str) -> Result<Action, String> {
        if let Some(span) = line.strip_prefix('+') {
            return read_span(span).map(Action::Pass);
        }
        if let Some(words) = line.strip_prefix("= ") {
            return Ok(Action::Happen(words.into()));
        }
        let digits = line.bytes().take_while(u8::is_ascii_digit).count();
        let client =
            line[..digits].parse().map_err(|_| "a step begins with the number of a client, with + or with \"= \"")?;
        let rest = &line[digits..];
        let (sign, text) = rest.split_once(' ').unwrap_or((rest, ""));
        let protocol = protocol_of(client);
        let action = match sign {
            ">" => Action::Send(client, protocol.request(text)?, Then::Stay),
            ">>" => Action::Send(client, protocol.bytes(text)?, Then::Stay),
            ">>/" => Action::Send(client, protocol.bytes(text)?, Then::Finish),
            ">>x" => Action::Send(client, protocol.bytes(text)?, Then::Close),
            ">." => Action::Trickle(client, protocol.request(text)?),
            "<" => Action::Expect(client, protocol.reply(text)?),
            "<~" => Action::ExpectAmong(client, protocol.reply(text)?),
            "-" if text.is_empty() => Action::ExpectNothing(client),
            "<x" if text.is_empty() => Action::ExpectEnd(client),
            "/" if text.is_empty() => Action::Finish(client),
            "x" if text.is_empty() => Action::Close(client),
            "x&" if text.is_empty() => Action::CloseUnseen(client),
            "!" if text.is_empty() => Action::Reset(client),
            _ => return Err(format!("\"{sign}\" is nothing that a client does")),
        };
        Ok(action)
    }
}

/// Reads `3s`, `250ms`, `2d`: a whole number and its unit.
fn read_span(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().map_err(|_| format!("\"{text}\" is no time"))?;
    match &text[digits..] {
        "us" => Ok(Duration::from_micros(number)),
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number * 60)),
        "h" => Ok(Duration::from_secs(number * 3_600)),
        "d" => Ok(Duration::from_secs(number * 86_400)),
        unit => Err(format!("\"{unit}\" is no unit of time (us, ms, s, m, h, d)")),
    }
}
