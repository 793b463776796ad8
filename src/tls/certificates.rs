//! The certificate that the terminator shows, its key, and the authorities whose clients it lets in: from files to what rustls wants.

use crate::pem::{authorities_in, certificates_in, key_in, wrong};
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
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

impl Files {
    /// Reads them.
    ///
    /// # Errors
    ///
    /// One sentence that names the file and what is wrong with it.
    pub fn read(&self) -> Result<Arc<ServerConfig>, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| format!("TLS cannot be used: {error}"))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => builder.with_client_cert_verifier(verifier_of(path, provider)?),
        };
        let chain = certificates_in(&self.certificate)?;
        let key = key_in(&self.key)?;
        let config = builder.with_single_cert(chain, key);
        let mut config =
            config.map_err(|error| format!("{} with {}: {error}", self.certificate.display(), self.key.display()))?;
        if self.client_ca.is_some() {
            // A session that goes on would be believed without another look at the client's certificate.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Arc::new(config))
    }
}

fn verifier_of(
    path: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, String> {
    let roots = Arc::new(authorities_in(path)?);
    WebPkiClientVerifier::builder_with_provider(roots, provider).build().map_err(|error| wrong(path, &error))
}
