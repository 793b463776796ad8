//! Raw bytes as the header of a proxy: a parsed header survives writing and parsing, and bytes behind it do not change
//! it.

use poolcounter_core::proxy::{Header, MAX_COMMON_NAME, MAX_HEADER};

/// Reads the input as a header.
pub fn run(data: &[u8]) {
    let read = Header::read(data);
    let longer = [data, &[0]].concat();
    match &read {
        Ok(Some((header, len))) => {
            assert!(*len <= data.len().min(MAX_HEADER));
            assert_eq!(Header::read(&data[..len - 1]), Ok(None), "no header without its end");
            assert_eq!(Header::read(&longer), read, "what follows changes nothing");
            let mut written = Vec::new();
            header.write(&mut written);
            assert_eq!(Header::read(&written), Ok(Some((header.clone(), written.len()))));
            let name = header.tls.as_ref().and_then(|tls| tls.common_name.as_ref());
            assert!(name.is_none_or(|name| name.len() <= MAX_COMMON_NAME && !name.contains(char::is_control)));
            assert!(header.source.is_some() || *header == Header::default(), "nothing is known of nobody");
        }
        Ok(None) => assert!(data.len() < MAX_HEADER, "it cannot become one"),
        Err(_) => assert_eq!(Header::read(&longer), read, "it stays wrong"),
    }
}
