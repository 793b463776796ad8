//! Servers that speak no protocol, and reply as a test says.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Server that answers each line of each connection with the same bytes, and counts its connections.
pub struct Strange {
    pub address: String,
    connections: Arc<AtomicUsize>,
}

impl Strange {
    /// Starts one on a free port.
    pub fn start(answer: impl Into<Vec<u8>>) -> Strange {
        Strange::on(TcpListener::bind("127.0.0.1:0").expect("there is a free port"), answer)
    }

    /// Starts one on this listener.
    pub fn on(listener: TcpListener, answer: impl Into<Vec<u8>>) -> Strange {
        let answer = answer.into();
        Strange::answering_on(listener, move |_| answer.clone())
    }

    /// Starts one on a free port that answers what it reads at once, such as a line, by this function.
    pub fn answering(answer: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static) -> Strange {
        Strange::answering_on(TcpListener::bind("127.0.0.1:0").expect("there is a free port"), answer)
    }

    fn answering_on(listener: TcpListener, answer: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static) -> Strange {
        let answer = Arc::new(answer);
        let address = listener.local_addr().expect("is bound").to_string();
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        // The thread ends with the process.
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                counter.fetch_add(1, Ordering::SeqCst);
                let answer = Arc::clone(&answer);
                thread::spawn(move || {
                    let mut request = [0; 1024];
                    while let Ok(len @ 1..) = stream.read(&mut request) {
                        if stream.write_all(&answer(&request[..len])).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Strange { address, connections }
    }

    /// Returns the number of connections that were made to it.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Starts a server that answers the requests of one connection with these, and then closes it. Returns its address.
pub fn scripted(answers: &[&str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = listener.local_addr().expect("is bound").to_string();
    let answers: Vec<String> = answers.iter().map(ToString::to_string).collect();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the client connects");
        for answer in answers {
            if stream.read(&mut [0; 4096]).is_ok_and(|len| len > 0) {
                // The client may have closed the connection.
                let _ = stream.write_all(answer.as_bytes());
            }
        }
    });
    address
}
