//! Proxy whose connections can be cut: the client notices and the server does not, as behind a firewall that forgets
//! connections.

use crate::skipped;
use socket2::{Domain, SockFilter, SockRef, Socket, Type};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;

/// Proxy on a port of its own, for as long as the process lives.
pub struct CutProxy {
    /// Address for clients.
    pub address: SocketAddr,
    /// Both ends of each connection: the client's and the server's.
    ends: Arc<Mutex<Vec<(TcpStream, TcpStream)>>>,
}

impl CutProxy {
    /// Starts a proxy to a server.
    pub fn to(server: SocketAddr) -> CutProxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("is bound");
        let ends = Arc::new(Mutex::new(Vec::new()));
        let made = ends.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(upstream) = TcpStream::connect(server) else { continue };
                let copy = |stream: &TcpStream| stream.try_clone().expect("there are descriptors");
                for (from, to) in [(copy(&client), copy(&upstream)), (copy(&upstream), copy(&client))] {
                    thread::spawn(move || pass(from, to));
                }
                made.lock().expect("no thread panics").push((client, upstream));
            }
        });
        CutProxy { address, ends }
    }

    /// Closes the clients' side of all connections.
    pub fn cut(&self) {
        for (client, _) in &*self.ends.lock().expect("no thread panics") {
            // The client may have left already.
            let _ = client.shutdown(Shutdown::Both);
        }
    }

    /// Returns the number of connections that were made.
    pub fn connections(&self) -> usize {
        self.ends.lock().expect("no thread panics").len()
    }

    /// Closes the server's side of all connections.
    pub fn cut_server(&self) {
        for (_, upstream) in &*self.ends.lock().expect("no thread panics") {
            let _ = upstream.shutdown(Shutdown::Both);
        }
    }

    /// Cuts the cable of all connections there are: each side hears nothing more. New ones can be made.
    pub fn fall_silent(&self) {
        for (client, upstream) in &*self.ends.lock().expect("no thread panics") {
            [client, upstream].into_iter().for_each(fall_silent);
        }
    }

    /// Closes the server's side of the connections that were cut.
    pub fn forget(&self) {
        for (client, upstream) in self.ends.lock().expect("no thread panics").iter() {
            if client.peer_addr().is_err() {
                let _ = upstream.shutdown(Shutdown::Both);
            }
        }
    }
}

/// Lets the system drop all packets that come for this socket, without an answer, as if its cable was cut.
pub fn fall_silent(socket: &TcpStream) {
    drop_all(&SockRef::from(socket)).expect("an option");
}

/// Returns whether this system lets its users cut cables; reports it once if not.
pub fn can_fall_silent() -> bool {
    static CAN: LazyLock<bool> = LazyLock::new(|| {
        let can = Socket::new(Domain::IPV4, Type::STREAM, None).is_ok_and(|socket| drop_all(&socket).is_ok());
        if !can {
            skipped("a cut cable, because this system gives filters of sockets to root alone");
        }
        can
    });
    *CAN
}

fn drop_all(socket: &Socket) -> io::Result<()> {
    // BPF_RET with the length 0: nothing is left of any packet.
    socket.attach_filter(&[SockFilter::new(6, 0, 0, 0)])
}

/// Passes bytes on until either side ends. The other side stays open.
fn pass(mut from: TcpStream, mut to: TcpStream) {
    let mut chunk = [0; 4096];
    while let Ok(len @ 1..) = from.read(&mut chunk) {
        if to.write_all(&chunk[..len]).is_err() {
            return;
        }
    }
}
