//! Pseudo terminals for programs that tests start.

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::{OpenptyResult, Winsize, openpty};

/// Opens a pseudo terminal of 80 columns and 24 rows.
pub fn open() -> OpenptyResult {
    open_with(80, 24)
}

/// Opens a pseudo terminal with this number of columns and rows. Children do not inherit its descriptors, which would
/// keep it open.
pub fn open_with(columns: u16, rows: u16) -> OpenptyResult {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let pair = openpty(Some(&size), None).expect("a pseudo terminal");
    for side in [&pair.master, &pair.slave] {
        fcntl(side, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).expect("is open");
    }
    pair
}
