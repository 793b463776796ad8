//! VFS of SQLite over a disk that fails, with the functions that SQLite calls, and no others. Files have no shared
//! memory, because an exclusively locked database needs none, and no locks, because the store has its own.

#![allow(unsafe_code, reason = "SQLite calls a VFS through pointers")]

use crate::jobs_crash::disk::{Failure, FaultyDisk};
use rusqlite::ffi::{
    SQLITE_CANTOPEN, SQLITE_FULL, SQLITE_IOCAP_POWERSAFE_OVERWRITE, SQLITE_IOERR, SQLITE_IOERR_DELETE,
    SQLITE_IOERR_FSYNC, SQLITE_IOERR_READ, SQLITE_IOERR_SHORT_READ, SQLITE_IOERR_WRITE, SQLITE_NOTFOUND, SQLITE_OK,
    SQLITE_OPEN_CREATE, sqlite3_file, sqlite3_io_methods, sqlite3_vfs, sqlite3_vfs_find, sqlite3_vfs_register,
};
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

/// Open file, as SQLite allocates it.
#[repr(C)]
struct Handle {
    base: sqlite3_file,
    /// Null when it is not open.
    own: *mut Own,
}

struct Own {
    disk: FaultyDisk,
    path: PathBuf,
}

/// Functions of an open file.
static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(lock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(nothing),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

/// Returns a new disk, and the name by which SQLite knows it.
pub fn new_disk(seed: u64) -> (FaultyDisk, String) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (disk, name) = (FaultyDisk::new(seed), format!("faulty{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    register(&name, &disk);
    (disk, name)
}

/// Registers a disk with SQLite by this name, for as long as the process runs.
fn register(name: &str, disk: &FaultyDisk) {
    let name = CString::new(name).expect("the tests choose names without zeros").into_raw();
    // SAFETY: the default VFS is there for as long as the process runs, and is only read.
    let system = unsafe { *sqlite3_vfs_find(ptr::null()) };
    let vfs = Box::leak(Box::new(sqlite3_vfs {
        iVersion: 1,
        szOsFile: size_of::<Handle>() as c_int,
        pNext: ptr::null_mut(),
        zName: name,
        pAppData: Box::into_raw(Box::new(disk.clone())).cast(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        // The rest is the system's, and needs no data of its own.
        ..system
    }));
    // SAFETY: the VFS, its name and its disk are leaked, so that they outlive every connection.
    let result = unsafe { sqlite3_vfs_register(vfs, 0) };
    assert_eq!(result, SQLITE_OK, "SQLite takes another VFS");
}

/// Returns the disk and the path of an open file.
///
/// # Safety
///
/// `file` is one that `open` has opened and `close` has not closed.
unsafe fn own<'a>(file: *mut sqlite3_file) -> &'a Own {
    // SAFETY: SQLite hands over what `open` filled in, and never after `close`.
    unsafe { &*(*file.cast::<Handle>()).own }
}

/// # Safety
///
/// `name` is null, or a string that ends with a zero and outlives the call.
unsafe fn path_of(name: *const c_char) -> Option<PathBuf> {
    // SAFETY: as the caller promises.
    let bytes = unsafe { (!name.is_null()).then(|| CStr::from_ptr(name)) }?;
    Some(Path::new(OsStr::from_bytes(bytes.to_bytes())).to_path_buf())
}

fn code(result: Result<(), Failure>, device: c_int) -> c_int {
    match result {
        Ok(()) => SQLITE_OK,
        Err(Failure::Full) => SQLITE_FULL,
        Err(Failure::Device) => device,
        Err(Failure::Off) => SQLITE_IOERR,
    }
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite hands over the VFS that was registered, a name or null, and room for a `Handle`.
    let (disk, path, handle) =
        unsafe { (&*(*vfs).pAppData.cast::<FaultyDisk>(), path_of(name), &mut *file.cast::<Handle>()) };
    *handle = Handle { base: sqlite3_file { pMethods: ptr::null() }, own: ptr::null_mut() };
    let Some(path) = path else { return SQLITE_CANTOPEN };
    if disk.open(&path, flags & SQLITE_OPEN_CREATE != 0).is_err() {
        return SQLITE_CANTOPEN;
    }
    handle.own = Box::into_raw(Box::new(Own { disk: disk.clone(), path }));
    handle.base.pMethods = &raw const METHODS;
    if !out_flags.is_null() {
        // SAFETY: it is not null, so it is room for flags.
        unsafe { *out_flags = flags };
    }
    SQLITE_OK
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: `open` made the box, and SQLite closes a file once.
    drop(unsafe { Box::from_raw((*file.cast::<Handle>()).own) });
    SQLITE_OK
}

unsafe extern "C" fn read(file: *mut sqlite3_file, into: *mut c_void, len: c_int, at: i64) -> c_int {
    // SAFETY: the file is open, and SQLite gives room for `len` bytes.
    let (own, bytes) = unsafe { (own(file), std::slice::from_raw_parts_mut(into.cast::<u8>(), len as usize)) };
    match own.disk.read(&own.path, at as usize, bytes) {
        Ok(read) if read == bytes.len() => SQLITE_OK,
        Ok(read) => {
            // SQLite expects zeros behind the end of the file.
            bytes[read..].fill(0);
            SQLITE_IOERR_SHORT_READ
        }
        Err(_) => SQLITE_IOERR_READ,
    }
}

unsafe extern "C" fn write(file: *mut sqlite3_file, from: *const c_void, len: c_int, at: i64) -> c_int {
    // SAFETY: the file is open, and SQLite hands over `len` bytes.
    let (own, bytes) = unsafe { (own(file), std::slice::from_raw_parts(from.cast::<u8>(), len as usize)) };
    code(own.disk.write(&own.path, at as usize, bytes), SQLITE_IOERR_WRITE)
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, len: i64) -> c_int {
    // SAFETY: the file is open.
    let own = unsafe { own(file) };
    code(own.disk.truncate(&own.path, len as usize), SQLITE_IOERR_WRITE)
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, _flags: c_int) -> c_int {
    // SAFETY: the file is open.
    let own = unsafe { own(file) };
    own.disk.delay_sync();
    code(own.disk.sync(&own.path), SQLITE_IOERR_FSYNC)
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, size: *mut i64) -> c_int {
    // SAFETY: the file is open, and `size` is room for its size.
    let (own, size) = unsafe { (own(file), &mut *size) };
    match own.disk.len(&own.path) {
        Ok(len) => {
            *size = len as i64;
            SQLITE_OK
        }
        Err(_) => SQLITE_IOERR_READ,
    }
}

unsafe extern "C" fn lock(_file: *mut sqlite3_file, _level: c_int) -> c_int {
    SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(_file: *mut sqlite3_file, is_locked: *mut c_int) -> c_int {
    // SAFETY: it is room for the answer.
    unsafe { *is_locked = 0 };
    SQLITE_OK
}

unsafe extern "C" fn file_control(_file: *mut sqlite3_file, _what: c_int, _argument: *mut c_void) -> c_int {
    SQLITE_NOTFOUND
}

/// Returns what the system's own VFS says: a write changes no bytes beside its own, so that none follows a commit.
unsafe extern "C" fn characteristics(_file: *mut sqlite3_file) -> c_int {
    SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

/// Returns no sector size: SQLite assumes the worst.
unsafe extern "C" fn nothing(_file: *mut sqlite3_file) -> c_int {
    0
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, name: *const c_char, _sync: c_int) -> c_int {
    // SAFETY: SQLite hands over the VFS that was registered, and a name.
    let (disk, path) = unsafe { (&*(*vfs).pAppData.cast::<FaultyDisk>(), path_of(name)) };
    path.map_or(SQLITE_IOERR_DELETE, |path| code(disk.remove(&path), SQLITE_IOERR_DELETE))
}

unsafe extern "C" fn access(_vfs: *mut sqlite3_vfs, name: *const c_char, _how: c_int, is_there: *mut c_int) -> c_int {
    // SAFETY: SQLite hands over a name, and room for the answer.
    unsafe { *is_there = c_int::from(path_of(name).is_some_and(|path| path.exists())) };
    SQLITE_OK
}
