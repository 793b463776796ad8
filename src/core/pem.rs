//! Certificates and keys in PEM files. It does not know their purposes.

use crate::file::open_regular;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt::Display;
use std::hint::black_box;
use std::io::Read;
use std::path::Path;

/// Returns the certificates in a file, of which there must be at least one.
///
/// # Errors
///
/// One sentence with the file and the fault.
pub fn certificates_in(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = read(path)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let certificates = read.map_err(|error| wrong(path, &error))?;
    if certificates.is_empty() { Err(wrong(path, &"there is no certificate in it")) } else { Ok(certificates) }
}

/// Returns the authorities in a file.
///
/// # Errors
///
/// As for [`certificates_in`].
pub fn authorities_in(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    certificates_in(path)?
        .into_iter()
        .try_for_each(|authority| roots.add(authority))
        .map_err(|error| wrong(path, &error))?;
    Ok(roots)
}

/// Returns the private key in a file.
///
/// # Errors
///
/// As for [`certificates_in`].
pub fn key_in(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let mut text = read(path)?;
    let key = PrivateKeyDer::from_pem_slice(&text).map_err(|error| wrong(path, &error));
    // The key must not remain in freed memory.
    text.fill(0);
    black_box(&text);
    key
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let read = open_regular(path).and_then(|mut file| file.read_to_end(&mut text));
    read.map_err(|error| wrong(path, &error))?;
    Ok(text)
}

/// Returns a sentence with the file and the error.
pub fn wrong(path: &Path, error: &dyn Display) -> String {
    format!("{}: {error}", path.display())
}
