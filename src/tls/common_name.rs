//! Name in a client's certificate, by which the server knows the client.

use poolcounter_core::proxy::MAX_COMMON_NAME;
use poolcounter_core::words;
use rustls::pki_types::{CertificateDer, TrustAnchor};
use webpki::{EndEntityCert, anchor_from_trusted_cert};

/// DER: tags of the parts of a subject, and of the strings that are read.
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
/// 2.5.4.3, the attribute `commonName`.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

words! {
    /// Reason for which a certificate has no name that can be passed on. Its client is not admitted.
    pub enum Nameless, text {
        /// The certificate cannot be read.
        Malformed = "its certificate cannot be read",
        /// The certificate has no common name, and is for no host.
        Missing = "its certificate has neither a common name nor one of a host",
        /// The certificate has several common names, and none can be preferred.
        Several = "its certificate has several common names",
        /// An authority of the certificate has name constraints, which bind only names of hosts, and the certificate is
        /// for no host.
        Constrained = "an authority of its certificate has name constraints, and it is for no host that they allow",
        /// The name is empty, longer than [`MAX_COMMON_NAME`], no text, or has control characters.
        Unusable = "the name in its certificate is too long, or no text",
    }
}

/// Returns the common name of the subject of a chain's first certificate; without one, the first host of the
/// certificate. The chain was verified against the authorities. If one of its own has name constraints, the host is
/// returned in any case: constraints do not apply to common names.
///
/// # Errors
///
/// Fails if the certificate has no name that can be passed on.
pub fn name_of(chain: &[CertificateDer<'_>], authorities: &[TrustAnchor<'_>]) -> Result<String, Nameless> {
    let certificate = chain.first().and_then(parse).ok_or(Nameless::Malformed)?;
    let common_name = common_name_in(certificate.subject())?;
    let host = certificate.valid_dns_names().next();
    let name = match is_constrained(chain, authorities) {
        true => host.ok_or(Nameless::Constrained)?,
        false => common_name.or(host).ok_or(Nameless::Missing)?,
    };
    let is_usable = !name.is_empty() && name.len() <= MAX_COMMON_NAME && !name.chars().any(char::is_control);
    if is_usable { Ok(name.into()) } else { Err(Nameless::Unusable) }
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Option<EndEntityCert<'a>> {
    EndEntityCert::try_from(certificate).ok()
}

/// Returns whether an authority with name constraints may be on the way from the first certificate to a trusted
/// authority. A client that sends more than it needs may look constrained without need, but it cannot leave out the
/// needed certificates.
fn is_constrained(chain: &[CertificateDer<'_>], authorities: &[TrustAnchor<'_>]) -> bool {
    let sent = chain.iter().skip(1).filter_map(|authority| anchor_from_trusted_cert(authority).ok());
    let has_issued = |anchor: &TrustAnchor<'_>| {
        chain.iter().filter_map(parse).any(|certificate| certificate.issuer() == anchor.subject.as_ref())
    };
    sent.into_iter().any(|authority| authority.name_constraints.is_some())
        || authorities.iter().any(|anchor| anchor.name_constraints.is_some() && has_issued(anchor))
}

/// Returns the common name in a subject, which is a list of sets of attributes.
fn common_name_in(subject: &[u8]) -> Result<Option<&str>, Nameless> {
    let mut found = None;
    for set in Values(subject) {
        for attribute in Values(expect(SET, set?)?) {
            let mut parts = Values(expect(SEQUENCE, attribute?)?);
            let mut part = || parts.next().unwrap_or(Err(Nameless::Malformed));
            if expect(OBJECT_IDENTIFIER, part()?)? != COMMON_NAME {
                continue;
            }
            let (UTF8_STRING | PRINTABLE_STRING | IA5_STRING, name) = part()? else { return Err(Nameless::Unusable) };
            if found.replace(str::from_utf8(name).map_err(|_| Nameless::Unusable)?).is_some() {
                return Err(Nameless::Several);
            }
        }
    }
    Ok(found)
}

/// A tag and the content behind it.
type Value<'a> = (u8, &'a [u8]);

fn expect(tag: u8, (found, content): Value<'_>) -> Result<&[u8], Nameless> {
    if found == tag { Ok(content) } else { Err(Nameless::Malformed) }
}

/// Consecutive values in DER: their tags and contents.
struct Values<'a>(&'a [u8]);

impl<'a> Iterator for Values<'a> {
    type Item = Result<Value<'a>, Nameless>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let split = split_value(self.0);
        // A value that is cut off ends the iteration, too.
        self.0 = split.map_or(&[], |(_, rest)| rest);
        Some(split.map(|(value, _)| value).ok_or(Nameless::Malformed))
    }
}

/// Returns the first value and the bytes behind it. No subject has lengths of more than two bytes.
fn split_value(bytes: &[u8]) -> Option<(Value<'_>, &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => rest.split_first().map(|(len, rest)| (usize::from(*len), rest))?,
        0x82 => rest.split_first_chunk().map(|(len, rest)| (usize::from(u16::from_be_bytes(*len)), rest))?,
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some(((tag, content), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(tag: u8, content: &[u8]) -> Vec<u8> {
        let len = content.len();
        let len = match len {
            0..=0x7f => vec![len as u8],
            0x80..=0xff => vec![0x81, len as u8],
            _ => vec![0x82, (len >> 8) as u8, len as u8],
        };
        [&[tag], &len[..], content].concat()
    }

    fn attribute(id: &[u8], tag: u8, text: &[u8]) -> Vec<u8> {
        value(SET, &value(SEQUENCE, &[value(OBJECT_IDENTIFIER, id), value(tag, text)].concat()))
    }

    fn read(subject: &[Vec<u8>]) -> Result<Option<String>, Nameless> {
        common_name_in(&subject.concat()).map(|name| name.map(String::from))
    }

    #[test]
    fn common_name_is_found_among_other_attributes() {
        let organisation = attribute(&[0x55, 0x04, 0x0a], UTF8_STRING, &[b'o'; 300]);
        for tag in [UTF8_STRING, PRINTABLE_STRING, IA5_STRING] {
            let name = attribute(COMMON_NAME, tag, b"web1.example.org");
            for subject in
                [vec![name.clone()], vec![organisation.clone(), name.clone()], vec![name, organisation.clone()]]
            {
                assert_eq!(read(&subject), Ok(Some("web1.example.org".into())));
            }
        }
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[organisation]), Ok(None));
    }

    #[test]
    fn ambiguous_names_are_refused() {
        let name = |tag, text: &[u8]| attribute(COMMON_NAME, tag, text);
        assert_eq!(read(&[name(UTF8_STRING, b"a"), name(UTF8_STRING, b"a")]), Err(Nameless::Several));
        // UTF-16, which X.520 allows.
        assert_eq!(read(&[name(0x1e, b"\0a")]), Err(Nameless::Unusable));
        assert_eq!(read(&[name(UTF8_STRING, b"\xff")]), Err(Nameless::Unusable));
    }

    /// A subject that is cut off or changed anywhere gives a name or an error, and no panic.
    #[test]
    fn no_byte_leads_astray() {
        let subject = [attribute(&[0x55, 0x04, 0x0a], UTF8_STRING, b"o"), attribute(COMMON_NAME, UTF8_STRING, b"web")];
        let subject = subject.concat();
        for cut in 0..subject.len() {
            let read = common_name_in(&subject[..cut]);
            assert!(!matches!(read, Ok(Some(_))), "{cut} bytes: {read:?}");
        }
        for at in 0..subject.len() {
            for byte in 0..=u8::MAX {
                let mut changed = subject.clone();
                changed[at] = byte;
                if let Ok(Some(name)) = common_name_in(&changed) {
                    assert!(name.is_empty() || changed.windows(name.len()).any(|window| window == name.as_bytes()));
                }
            }
        }
    }
}
