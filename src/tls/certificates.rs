//! The certificate that the terminator shows, its key, and the authorities whose clients it lets in: from files to what rustls wants.

use super::common_name::{Nameless, name_of};
use poolcounter_core::pem::{authorities_in, certificates_in, key_in, wrong};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{Error, RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where they are, in PEM.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Files {
    /// The terminator's certificate, and the authorities between it and one that the clients know.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities that clients must have their certificates of; None asks clients for none.
    pub client_ca: Option<PathBuf>,
}

/// What the files hold, as it was read at one moment.
pub struct Credentials {
    /// Settings of rustls for new connections.
    pub config: Arc<ServerConfig>,
    /// The authorities of clients; None asks clients for no certificate.
    clients: Option<ClientAuthorities>,
}

struct ClientAuthorities {
    roots: Arc<RootCertStore>,
    verifier: Arc<dyn ClientCertVerifier>,
}

/// The certificates that a client has shown, its own first.
pub type Chain<'a> = Option<&'a [CertificateDer<'static>]>;

impl Credentials {
    /// Verifies a client's chain at the present time. The client has proved that the certificate is its own.
    ///
    /// # Errors
    ///
    /// When the client would not be let in now.
    pub fn verify(&self, chain: Chain<'_>) -> Result<(), Error> {
        let Some(clients) = &self.clients else { return Ok(()) };
        let (first, others) = chain.and_then(<[_]>::split_first).ok_or(Error::NoCertificatesPresented)?;
        clients.verifier.verify_client_cert(first, others, UnixTime::now()).map(drop)
    }

    /// Returns the name of the client with this chain, which was verified; None if clients show no certificates.
    ///
    /// # Errors
    ///
    /// When there is none that can be passed on.
    pub fn name_of(&self, chain: Chain<'_>) -> Result<Option<String>, Nameless> {
        let Some(clients) = &self.clients else { return Ok(None) };
        name_of(chain.unwrap_or_default(), &clients.roots.roots).map(Some)
    }
}

impl Files {
    /// Reads them.
    ///
    /// # Errors
    ///
    /// One sentence that names the file and what is wrong with it.
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
            // A session that goes on would be believed without another look at the client's certificate.
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
