//! Header of the PROXY protocol, version 2: the facts about its client that a proxy sends before the first byte.
//! Source: <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>. Version 1, which is text, is not read.

use crate::words;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// First bytes of each header.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes before the addresses: signature, version and command, family, and the length of the rest.
const FIXED: usize = 16;
/// Longest header that is read, in bytes. Proxies send some hundreds: addresses, names, and parameters of TLS.
pub const MAX_HEADER: usize = 4096;
/// Longest name of a certificate, in bytes, by X.520.
pub const MAX_COMMON_NAME: usize = 64;

/// Version 2, and the command of a proxy that has no client, such as for a health check.
const LOCAL: u8 = 0x20;
/// Version 2, and the command of a connection for a client.
const PROXY: u8 = 0x21;
/// TCP over IPv4 and over IPv6; other families have no usable addresses.
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;
const UNKNOWN: u8 = 0x00;

/// Types of the field about TLS, and of its inner fields for the version and the certificate's common name.
const TYPE_SSL: u8 = 0x20;
const SUBTYPE_VERSION: u8 = 0x21;
const SUBTYPE_COMMON_NAME: u8 = 0x22;
/// Flags of the client: it used TLS, and it gave a certificate, on this connection or in the session that it resumes.
const CLIENT_SSL: u8 = 0x01;
const CLIENT_CERT_CONN: u8 = 0x02;
const CLIENT_CERT_SESSION: u8 = 0x04;
/// Bytes of the field about TLS before its own fields: the flags, and zero if the certificate was verified.
const SSL_FIXED: usize = 5;
/// Bytes of a field before its value: its type and its length.
const FIELD_FIXED: usize = 3;

/// Facts about the client of a proxy.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Header {
    /// Address of the client; None if the proxy does not name it, or has no client.
    pub source: Option<SocketAddr>,
    /// Address that the client connected to; None if `source` is None, or of another family.
    pub destination: Option<SocketAddr>,
    /// Parameters of TLS, if the client used it.
    pub tls: Option<Tls>,
}

/// Parameters of the client's TLS.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Tls {
    /// Version such as `TLSv1.3`; empty if unknown.
    pub version: String,
    /// Common name of the client's certificate, if one was given and verified.
    pub common_name: Option<String>,
}

words! {
    /// Reason for which bytes are no header. The bytes after them cannot be trusted.
    pub enum Malformed, text {
        /// The bytes do not begin with the signature.
        Signature = "it does not begin with a PROXY header, version 2",
        /// The version or the command is unknown.
        Command = "its PROXY header has an unknown command",
        /// The header is longer than [`MAX_HEADER`].
        TooLong = "its PROXY header is too long",
        /// Its addresses or fields are cut off, or longer than the header.
        CutOff = "its PROXY header contradicts itself",
        /// A name is no text, or longer than [`MAX_COMMON_NAME`].
        Name = "its PROXY header has a name that is none",
    }
}

impl Header {
    /// Reads a header from the front of `bytes`. Returns it with its length in bytes; None if more bytes are needed.
    ///
    /// # Errors
    ///
    /// Fails as soon as the present bytes cannot become a header.
    pub fn read(bytes: &[u8]) -> Result<Option<(Header, usize)>, Malformed> {
        let known = bytes.len().min(SIGNATURE.len());
        if bytes[..known] != SIGNATURE[..known] {
            return Err(Malformed::Signature);
        }
        let Some(fixed) = bytes.first_chunk::<FIXED>() else { return Ok(None) };
        let (command, family) = (fixed[12], fixed[13]);
        if command != LOCAL && command != PROXY {
            return Err(Malformed::Command);
        }
        let len = FIXED + usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
        if len > MAX_HEADER {
            return Err(Malformed::TooLong);
        }
        let Some(body) = bytes.get(FIXED..len) else { return Ok(None) };
        let header = if command == PROXY { Header::read_body(family, body)? } else { Header::default() };
        Ok(Some((header, len)))
    }

    fn read_body(family: u8, body: &[u8]) -> Result<Header, Malformed> {
        let (source, destination, fields) = match family {
            TCP4 => {
                let (a, rest) = body.split_first_chunk::<12>().ok_or(Malformed::CutOff)?;
                let ip = |at: usize| IpAddr::from(Ipv4Addr::new(a[at], a[at + 1], a[at + 2], a[at + 3]));
                (Some(SocketAddr::new(ip(0), port(a, 8))), Some(SocketAddr::new(ip(4), port(a, 10))), rest)
            }
            TCP6 => {
                let (a, rest) = body.split_first_chunk::<36>().ok_or(Malformed::CutOff)?;
                let ip = |at: usize| {
                    let octets: [u8; 16] = a[at..at + 16].try_into().expect("the range has that length");
                    IpAddr::from(Ipv6Addr::from(octets)).to_canonical()
                };
                (Some(SocketAddr::new(ip(0), port(a, 32))), Some(SocketAddr::new(ip(16), port(a, 34))), rest)
            }
            // The client uses another kind of socket: its address is unknown, and its fields are not used.
            _ => return Ok(Header::default()),
        };
        let mut tls = None;
        for field in Fields(fields) {
            if let (TYPE_SSL, value) = field? {
                tls = Tls::read(value)?;
            }
        }
        Ok(Header { source, destination, tls })
    }

    /// Appends the header to `out`, as a proxy sends it.
    ///
    /// # Panics
    ///
    /// Panics if a name in it is longer than a header.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        let (command, family) = match (self.source, self.destination) {
            (Some(SocketAddr::V4(source)), Some(SocketAddr::V4(destination))) => {
                body.extend(source.ip().octets());
                body.extend(destination.ip().octets());
                (PROXY, TCP4)
            }
            (Some(source), Some(destination)) => {
                for address in [source, destination] {
                    body.extend(match address.ip() {
                        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                        IpAddr::V6(ip) => ip.octets(),
                    });
                }
                (PROXY, TCP6)
            }
            _ => (LOCAL, UNKNOWN),
        };
        if let (PROXY, Some(source), Some(destination)) = (command, self.source, self.destination) {
            body.extend(source.port().to_be_bytes());
            body.extend(destination.port().to_be_bytes());
            if let Some(tls) = &self.tls {
                write_field(&mut body, TYPE_SSL, |value| tls.write(value));
            }
        }
        out.extend(SIGNATURE);
        out.extend([command, family]);
        out.extend(len_of(&body));
        out.extend(body);
    }
}

impl Tls {
    /// Reads the field about TLS; None if the client did not use TLS.
    fn read(value: &[u8]) -> Result<Option<Tls>, Malformed> {
        let (fixed, fields) = value.split_first_chunk::<SSL_FIXED>().ok_or(Malformed::CutOff)?;
        let &[client, verify @ ..] = fixed;
        let is_verified = client & (CLIENT_CERT_CONN | CLIENT_CERT_SESSION) != 0 && verify == [0; 4];
        let mut tls = Tls::default();
        for field in Fields(fields) {
            match field? {
                (SUBTYPE_VERSION, value) => tls.version = name(value)?,
                (SUBTYPE_COMMON_NAME, value) if is_verified => tls.common_name = Some(name(value)?),
                _ => {}
            }
        }
        Ok((client & CLIENT_SSL != 0).then_some(tls))
    }

    fn write(&self, out: &mut Vec<u8>) {
        let certificate = if self.common_name.is_some() { CLIENT_CERT_CONN | CLIENT_CERT_SESSION } else { 0 };
        out.push(CLIENT_SSL | certificate);
        // Zero means that the certificate was verified; without one there was nothing to verify.
        out.extend(u32::from(self.common_name.is_none()).to_be_bytes());
        write_field(out, SUBTYPE_VERSION, |value| value.extend(self.version.as_bytes()));
        if let Some(common_name) = &self.common_name {
            write_field(out, SUBTYPE_COMMON_NAME, |value| value.extend(common_name.as_bytes()));
        }
    }
}

/// Fields of a header, or of a field about TLS: their types and values.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u8, &'a [u8]), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.0.split_first_chunk::<FIELD_FIXED>().and_then(|(&[of, high, low], rest)| {
            let (value, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([high, low])))?;
            Some(((of, value), rest))
        });
        // A field that is cut off ends the iteration, too.
        let (field, rest) = field.map_or((Err(Malformed::CutOff), &[][..]), |(field, rest)| (Ok(field), rest));
        self.0 = rest;
        Some(field)
    }
}

/// Appends a field whose value `write` writes.
fn write_field(out: &mut Vec<u8>, of: u8, write: impl FnOnce(&mut Vec<u8>)) {
    let mut value = Vec::new();
    write(&mut value);
    out.push(of);
    out.extend(len_of(&value));
    out.extend(value);
}

fn len_of(value: &[u8]) -> [u8; 2] {
    u16::try_from(value.len()).expect("a header is short").to_be_bytes()
}

fn port(addresses: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([addresses[at], addresses[at + 1]])
}

fn name(value: &[u8]) -> Result<String, Malformed> {
    let text = str::from_utf8(value).ok().filter(|text| text.len() <= MAX_COMMON_NAME);
    text.filter(|text| !text.chars().any(char::is_control)).map(String::from).ok_or(Malformed::Name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(source: &str, destination: &str, tls: Option<Tls>) -> Header {
        let address = |text: &str| Some(text.parse().expect("an address"));
        Header { source: address(source), destination: address(destination), tls }
    }

    fn written(header: &Header) -> Vec<u8> {
        let mut bytes = Vec::new();
        header.write(&mut bytes);
        bytes
    }

    #[test]
    fn header_is_read_as_it_was_written() {
        let tls = |common_name: Option<&str>| {
            Some(Tls { version: "TLSv1.3".into(), common_name: common_name.map(String::from) })
        };
        for want in [
            Header::default(),
            header("10.0.0.1:40000", "10.0.0.2:7533", None),
            header("[2001:db8::1]:40000", "[2001:db8::2]:7533", tls(None)),
            header("10.0.0.1:40000", "10.0.0.2:7533", tls(Some("web1.example.org"))),
        ] {
            let mut bytes = written(&want);
            let len = bytes.len();
            for cut in 0..len {
                assert_eq!(Header::read(&bytes[..cut]), Ok(None), "{cut} bytes of {want:?}");
            }
            bytes.extend(b"ACQ4ME");
            assert_eq!(Header::read(&bytes), Ok(Some((want, len))));
        }
    }

    #[test]
    fn ipv4_address_in_ipv6_is_one() {
        let mixed = header("10.0.0.1:4", "[2001:db8::2]:5", None);
        assert_eq!(Header::read(&written(&mixed)).map(|read| read.map(|(header, _)| header)), Ok(Some(mixed)));
    }

    /// Fields in the order in which HAProxy writes them with `send-proxy-v2-ssl-cn`.
    #[test]
    fn fields_of_a_longer_proxy_header_are_read() {
        let mut bytes = SIGNATURE.to_vec();
        let mut body = vec![192, 0, 2, 1, 192, 0, 2, 2, 0x9c, 0x40, 0x1d, 0x6b];
        write_field(&mut body, 0x01, |value| value.extend(b"h2"));
        write_field(&mut body, TYPE_SSL, |value| {
            value.extend([CLIENT_SSL | CLIENT_CERT_CONN | CLIENT_CERT_SESSION, 0, 0, 0, 0]);
            write_field(value, 0x23, |cipher| cipher.extend(b"TLS_AES_256_GCM_SHA384"));
            write_field(value, SUBTYPE_VERSION, |version| version.extend(b"TLSv1.3"));
            write_field(value, SUBTYPE_COMMON_NAME, |name| name.extend(b"web1"));
        });
        bytes.extend([PROXY, TCP4]);
        bytes.extend(len_of(&body));
        bytes.extend(body);
        let (header, len) = Header::read(&bytes).expect("is a header").expect("is whole");
        assert_eq!(len, bytes.len());
        assert_eq!(header.source, Some("192.0.2.1:40000".parse().expect("an address")));
        assert_eq!(header.tls, Some(Tls { version: "TLSv1.3".into(), common_name: Some("web1".into()) }));
    }

    #[test]
    fn certificate_that_was_not_verified_has_no_name() {
        let whole = Tls { version: String::new(), common_name: Some("root".into()) };
        let mut value = Vec::new();
        whole.write(&mut value);
        assert_eq!(Tls::read(&value), Ok(Some(whole)));
        let mut unverified = value.clone();
        unverified[4] = 1;
        assert_eq!(Tls::read(&unverified), Ok(Some(Tls::default())));
        let mut without = value;
        without[0] = CLIENT_SSL;
        assert_eq!(Tls::read(&without), Ok(Some(Tls::default())));
    }

    #[test]
    fn other_bytes_are_refused_as_a_header() {
        let good = written(&header("10.0.0.1:40000", "10.0.0.2:7533", Some(Tls::default())));
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            Header::read(&bytes)
        };
        assert_eq!(Header::read(b"ACQ4ME a 1 1 1\n"), Err(Malformed::Signature));
        assert_eq!(Header::read(b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n"), Err(Malformed::Signature));
        assert_eq!(with(12, 0x11), Err(Malformed::Command));
        assert_eq!(with(12, 0x22), Err(Malformed::Command));
        assert_eq!(with(14, 0xff), Err(Malformed::TooLong));
        assert_eq!(with(15, 11), Err(Malformed::CutOff));
        assert_eq!(with(15, good[15] - 1), Err(Malformed::CutOff));
        for bad in [vec![b'a'; MAX_COMMON_NAME + 1], b"\xff".to_vec(), b"a\nb".to_vec()] {
            assert_eq!(name(&bad), Err(Malformed::Name));
        }
    }
}
