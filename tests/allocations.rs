//! In the steady state, serving a request allocates nothing: the allocator is asked.

#![allow(unsafe_code, reason = "an allocator cannot be written without")]

use poolcounter::net::{Connections, News, Stream};

use poolcounter::services::{Kind, Limits, Services};
use poolcounter::time::{Span, Time};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{self, ErrorKind, Read, Write};

/// Counts how often a thread asks for memory.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A client that sends one of two requests by turns, and ignores the answers.
struct Script {
    requests: [&'static [u8]; 2],
    sent: usize,
    /// There is a request to be read.
    full: bool,
}

impl Read for Script {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if !std::mem::take(&mut self.full) {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.sent += 1;
        let mut request = self.requests[self.sent % 2];
        request.read(bytes)
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for Script {
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn peer(&self) -> io::Result<String> {
        Ok("script".into())
    }
}

#[test]
fn the_steady_state_allocates_nothing() {
    let mut connections = Connections::new(Services::new(Limits::default()), Span::ZERO);
    let scripts: [[&[u8]; 2]; 5] = [
        [b"RELEASE\n", b"ACQ4ME a:page-with-a-name-of-some-length 1 50 10\n"],
        [b"RELEASE\n", b"ACQ4ANY a:page-with-a-name-of-some-length 1 50 10\n"],
        [b"RELEASE\n", b"ACQ4ME another 2 50 10 hold=5\n"],
        [b"RELEASE\nACQ4ME pipelined 1 1 0\n", b"RELEASE\nACQ4ANY pipelined 1 1 0\n"],
        [b"ACQ4ME a:page-with-a-name-of-some-length 1 1 0\n", b"ACQ4ME another 1 50 0\n"],
    ];
    let ids = scripts.map(|requests| connections.open(Script { requests, sent: 0, full: false }, Kind::Pools));
    let mut rounds = |range: std::ops::Range<u64>| {
        let before = ALLOCATIONS.get();
        for round in range {
            for id in ids {
                connections.stream(id).expect("is open").full = true;
                connections.mark(id, News { readable: true, ..News::default() });
            }
            let now = Time::from_micros(round * 1_000);
            connections.serve(|| now);
            connections.expire(now);
            connections.flush();
            connections.reap(now);
        }
        ALLOCATIONS.get() - before
    };
    assert!(rounds(0..100) > 0, "the tables are made");
    assert_eq!(rounds(100..10_000), 0, "they are made once");
}
