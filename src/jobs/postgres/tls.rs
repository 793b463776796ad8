//! TLS of the connection to the database, and the trust in servers: as `sslmode` and `sslrootcert` say.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::path::Path;
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;

/// File of trusted authorities on Debian and similar systems.
const SYSTEM: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Name of webpki's error, whose type rustls does not have among its own.
const CA_USED_AS_END_ENTITY: &str = "CaUsedAsEndEntity";

/// Returns the TLS connector. With `verifies`, a server needs a certificate of a trusted authority for the name by which
/// it was called. The authorities are in the file `root`, or are the authorities of the system.
///
/// # Errors
///
/// One sentence: the file cannot be read.
pub fn connector(verifies: bool, root: Option<&Path>) -> Result<MakeRustlsConnect, String> {
    let verifier = Verifier::new(verifies, root)?;
    let builder = ClientConfig::builder_with_provider(verifier.provider.clone()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| format!("TLS cannot be used: {error}"))?;
    let config = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

/// Verifier of a server's certificate.
#[derive(Debug)]
struct Verifier {
    /// None if every server is trusted.
    inner: Option<Arc<WebPkiServerVerifier>>,
    /// Certificates in the file that an operator has named.
    named: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(verifies: bool, root: Option<&Path>) -> Result<Verifier, String> {
        let provider = Arc::new(ring::default_provider());
        let mut verifier = Verifier { inner: None, named: Vec::new(), provider: provider.clone() };
        if !verifies {
            return Ok(verifier);
        }
        let root = root.filter(|path| *path != Path::new("system"));
        let path = root.unwrap_or(Path::new(SYSTEM));
        let wrong = |error: &dyn std::fmt::Display| format!("the certificates in {}: {error}", path.display());
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
            let certificate = certificate.map_err(|error| wrong(&error))?;
            verifier.named.extend(root.map(|_| certificate.clone()));
            // Authorities of the system may be of a kind that is not known here.
            if let Err(error) = roots.add(certificate)
                && root.is_some()
            {
                return Err(wrong(&error));
            }
        }
        let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        verifier.inner = Some(builder.build().map_err(|error| wrong(&error))?);
        Ok(verifier)
    }

    /// Returns true if a server has shown the very certificate that an operator has named, made for an authority as
    /// `openssl req -x509` makes them. libpq accepts these. All else about it was right: webpki returns this error
    /// last, after it has checked the time.
    fn is_named(&self, end_entity: &CertificateDer<'_>, verdict: &Error) -> bool {
        let Error::InvalidCertificate(CertificateError::Other(error)) = verdict else { return false };
        error.0.to_string() == CA_USED_AS_END_ENTITY && self.named.iter().any(|named| named == end_entity)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(inner) = &self.inner else { return Ok(ServerCertVerified::assertion()) };
        match inner.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            Err(error) if self.is_named(end_entity, &error) => {
                let certificate = ParsedCertificate::try_from(end_entity)?;
                verify_server_name(&certificate, name).map(|()| ServerCertVerified::assertion())
            }
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Certificate of `openssl req -x509`: self-signed and an authority, for db.example, valid from 2026 to 2081.
    const CERTIFICATE: &str = "\
-----BEGIN CERTIFICATE-----
MIIBiDCCAS6gAwIBAgIUXnk63XS8UqFA+3fyVyF9BO+GL14wCgYIKoZIzj0EAwIw
DTELMAkGA1UEAwwCZGIwIBcNMjYxMTIyMDIzMjIwWhgPMjA4MTA4MjUwMjMyMjBa
MA0xCzAJBgNVBAMMAmRiMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEa+KThLRs
yHkg2otEz0/276TZgMNq0V2TiMge8/u7dp54GW0vTqq4NBLWTa802UczbtZCf4Pi
iSFI0P8m7b0jr6NqMGgwHQYDVR0OBBYEFATbHrlY6uTHGhWr7KWz+YkwqoqsMB8G
A1UdIwQYMBaAFATbHrlY6uTHGhWr7KWz+YkwqoqsMA8GA1UdEwEB/wQFMAMBAf8w
FQYDVR0RBA4wDIIKZGIuZXhhbXBsZTAKBggqhkjOPQQDAgNIADBFAiB4zBOYoppL
h7zUqkMvoYgdSoyqrPlTrPu6hhROrKS7JQIhAI+fuudtB07cKD2R6uCROGoYyyd1
3cYDbMdPMXWCJCGn
-----END CERTIFICATE-----
";
    /// Seconds of the years 2030 and 2090.
    const WHILE_IT_IS_VALID: u64 = 1_900_000_000;
    const LATER: u64 = 3_800_000_000;

    fn verify(name: &'static str, at: u64) -> Result<(), Error> {
        let number = std::process::id();
        let path = std::env::temp_dir().join(format!("root-{number}-{name}-{at}.pem"));
        std::fs::write(&path, CERTIFICATE).expect("can be written");
        let verifier = Verifier::new(true, Some(&path)).expect("it is a certificate");
        std::fs::remove_file(&path).expect("can be removed");
        let certificate = CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).expect("it is one");
        let (name, at) =
            (ServerName::try_from(name).expect("is one"), UnixTime::since_unix_epoch(Duration::from_secs(at)));
        verifier.verify_server_cert(&certificate, &[], &name, &[], at).map(|_| ())
    }

    #[test]
    fn a_certificate_that_is_named_itself_is_trusted_while_it_is_valid() {
        assert_eq!(verify("db.example", WHILE_IT_IS_VALID), Ok(()));
        let verdict = verify("db.example", LATER);
        let is_expired = matches!(
            verdict,
            Err(Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }))
        );
        assert!(is_expired, "{verdict:?}");
        let verdict = verify("other.example", WHILE_IT_IS_VALID);
        assert!(format!("{verdict:?}").contains("NotValidForName"), "{verdict:?}");
    }
}
