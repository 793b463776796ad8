//! URL of a database in the settings.

use super::place::Place;
use std::fmt;

/// URL of a database.
#[derive(Clone)]
pub struct PostgresUrl {
    /// Text of the URL.
    url: String,
    /// Parsed URL.
    pub place: Place,
}

impl PartialEq for PostgresUrl {
    fn eq(&self, other: &Self) -> bool {
        self.url == other.url
    }
}

impl Eq for PostgresUrl {}

impl fmt::Debug for PostgresUrl {
    /// Writes the URL without its password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place.name())
    }
}

impl PostgresUrl {
    /// Reads a URL, with or without the scheme.
    ///
    /// # Errors
    ///
    /// One sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<PostgresUrl, String> {
        let url = if text.starts_with("//") { format!("postgresql:{text}") } else { text.to_string() };
        Ok(PostgresUrl { place: Place::parse(&url)?, url })
    }
}
