//! The bare limit of durable jobs: the speed of the disk. It appends the same bytes to a preallocated file, one batch
//! after the other, each synced. Nothing is parsed, scheduled or answered.

use super::report::Values;
use super::settings::Settings;
use std::env;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Length of the file. When it is full, the next batch goes to its beginning.
const FILE_BYTES: u64 = 64 << 20;
/// Bytes of a job there: its body and its numbers.
const JOB_BYTES: usize = 140;

/// Directory for the files of one server, which is removed with it.
pub struct Directory(PathBuf);

impl Directory {
    /// Creates an empty directory in `BENCH_DIRECTORY`, else among the temporary files of the build.
    pub fn new() -> io::Result<Directory> {
        let parent = env::var_os("BENCH_DIRECTORY").map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from);
        let path = parent.join(format!("bench-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path)?;
        Ok(Directory(path))
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // The next directory with this name is emptied first.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the jobs a second in batches of `outstanding`, a negligible processor time, batches a second, and jobs in
/// each.
pub fn measure(outstanding: usize, settings: &Settings) -> io::Result<Values> {
    let directory = Directory::new()?;
    let file = File::create(directory.path().join("log"))?;
    let zeros = vec![0; 1 << 20];
    let len = if settings.is_rehearsal { zeros.len() as u64 } else { FILE_BYTES };
    for at in (0..len).step_by(zeros.len()) {
        file.write_all_at(&zeros, at)?;
    }
    file.sync_all()?;
    let (batch, mut at, mut batches) = (vec![b'x'; outstanding * JOB_BYTES], 0, 0_u32);
    let start = Instant::now();
    while start.elapsed() < settings.time.max(Duration::from_millis(1)) {
        if at + batch.len() as u64 > len {
            at = 0;
        }
        file.write_all_at(&batch, at)?;
        file.sync_data()?;
        at += batch.len() as u64;
        batches += 1;
    }
    let each = f64::from(batches) / start.elapsed().as_secs_f64();
    Ok(vec![each * outstanding as f64, f64::NAN, each, outstanding as f64, f64::NAN])
}
