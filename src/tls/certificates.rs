//! Certificate of the terminator, its key, and the authorities of its clients: from files to the settings of rustls.

use super::common_name::{Nameless, name_of};
use poolcounter_core::pem::{authorities_in, certificates_in, key_in, wrong};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{Error, RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Paths of the certificate, its key and the clients' authorities, in PEM.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Files {
    /// Certificate of the terminator, and the authorities between it and a root that the clients know.
    pub certificate: PathBuf,
    /// Private key of the certificate.
    pub key: PathBuf,
    /// Authorities that must have issued the clients' certificates; None asks clients for none.
    pub client_ca: Option<PathBuf>,
}

/// Contents of the files, as they were read at one moment.
pub struct Credentials {
    /// Settings of rustls for new connections.
    pub config: Arc<ServerConfig>,
    /// Authorities of clients; None asks clients for no certificate.
    clients: Option<ClientAuthorities>,
}

struct ClientAuthorities {
    roots: Arc<RootCertStore>,
    verifier: Arc<dyn ClientCertVerifier>,
}

/// Certificates that a client has sent, its own first.
pub type Chain<'a> = Option<&'a [CertificateDer<'static>]>;

impl Credentials {
    /// Verifies a client's chain at the present time. The client has proved that the certificate is its own.
    ///
    /// # Errors
    ///
    /// Fails if the client would not be admitted now.
    pub fn verify(&self, chain: Chain<'_>) -> Result<(), Error> {
        let Some(clients) = &self.clients else { return Ok(()) };
        let (first, others) = chain.and_then(<[_]>::split_first).ok_or(Error::NoCertificatesPresented)?;
        clients.verifier.verify_client_cert(first, others, UnixTime::now()).map(drop)
    }

    /// Returns the name of the client with this chain, which was verified; None if clients send no certificates.
    ///
    /// # Errors
    ///
    /// Fails without a name that can be passed on.
    pub fn name_of(&self, chain: Chain<'_>) -> Result<Option<String>, Nameless> {
        let Some(clients) = &self.clients else { return Ok(None) };
        name_of(chain.unwrap_or_default(), &clients.roots.roots).map(Some)
    }
}

impl Files {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// One sentence with the file and the fault.
    pub fn read(&self) -> Result<Arc<Credentials>, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| format!("TLS cannot be used: {error}"))?;
        let clients = self.client_ca.as_deref().map(|path| authorities_of(path, provider)).transpose()?;
        let builder = match &clients {
            None => builder.with_no_client_auth(),
            Some(clients) => builder.with_client_cert_verifier(clients.verifier.clone()),
        };
        let chain = certificates_in(&self.certificate)?;
        let key = key_in(&self.key)?;
        let config = builder.with_single_cert(chain, key);
        let mut config =
            config.map_err(|error| format!("{} with {}: {error}", self.certificate.display(), self.key.display()))?;
        if clients.is_some() {
            // A resumed session would be trusted without another check of the client's certificate.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Arc::new(Credentials { config: Arc::new(config), clients }))
    }
}

fn authorities_of(path: &Path, provider: Arc<CryptoProvider>) -> Result<ClientAuthorities, String> {
    let roots = Arc::new(authorities_in(path)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider).build();
    Ok(ClientAuthorities { roots, verifier: verifier.map_err(|error| wrong(path, &error))? })
}
