//! Input file, plain or gzip-compressed, which is detected from its first bytes, not from its name.

use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flate2::bufread::MultiGzDecoder;

use super::error::ReadError;

/// First bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Compressed bytes read at a time.
const COMPRESSED_READ_BYTES: usize = 128 << 10;

/// Decompressed bytes read at a time.
const DECOMPRESSED_READ_BYTES: usize = 4 << 10;

/// An open input file.
pub struct Input {
    path: PathBuf,
    length: Option<u64>,
    compressed: bool,
    bytes: Box<dyn Read>,
    /// Bytes of the file read so far; the reader below a decompressor counts them here.
    read: Arc<AtomicU64>,
}

impl Input {
    /// Opens a file and reads its first bytes.
    ///
    /// # Errors
    /// The file cannot be opened or read, or is a folder, a device or a socket. A pipe is fine.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let failed = |what| {
            let path = path.to_path_buf();
            move |source| ReadError::Io { what, path, source }
        };
        let metadata = std::fs::metadata(path).map_err(failed("open"))?;
        let kind = metadata.file_type();
        let refused = if kind.is_dir() {
            Some("a folder")
        } else if kind.is_char_device() || kind.is_block_device() {
            // A terminal or /dev/zero has no end.
            Some("a device")
        } else if kind.is_socket() {
            Some("a socket")
        } else {
            None
        };
        if let Some(kind) = refused {
            let path = path.to_path_buf();
            return Err(ReadError::NotAFile { path, kind });
        }
        let file = File::open(path).map_err(failed("open"))?;
        let length = kind.is_file().then_some(metadata.len());
        let mut input = Self::from_reader(file, path).map_err(failed("read"))?;
        input.length = length;
        Ok(input)
    }

    /// Reads from any reader; `path` is used in messages and to infer the rank.
    ///
    /// # Errors
    /// The first bytes cannot be read.
    pub fn from_reader(reader: impl Read + 'static, path: &Path) -> std::io::Result<Self> {
        let read = Arc::new(AtomicU64::new(0));
        let mut counted = Counted {
            reader,
            read: read.clone(),
        };
        let mut head = Vec::with_capacity(GZIP.len());
        counted
            .by_ref()
            .take(GZIP.len() as u64)
            .read_to_end(&mut head)?;
        let compressed = head == GZIP;
        let whole = std::io::Cursor::new(head).chain(counted);
        let bytes: Box<dyn Read> = if compressed {
            let buffered = BufReader::with_capacity(COMPRESSED_READ_BYTES, whole);
            Box::new(MultiGzDecoder::new(buffered))
        } else {
            Box::new(whole)
        };
        Ok(Self {
            path: path.to_path_buf(),
            length: None,
            compressed,
            bytes,
            read,
        })
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Size of the file on disk in bytes, if known: the maximum of a progress bar.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// Whether the file is compressed.
    pub fn compressed(&self) -> bool {
        self.compressed
    }

    /// Returns a counter of the bytes read from the file, before decompression.
    pub(super) fn counter(&self) -> Counter {
        Counter(self.read.clone())
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        // When a decompressor finds damage, the bytes that it has written to the buffer are lost. A
        // small buffer limits the loss.
        let most = if self.compressed {
            DECOMPRESSED_READ_BYTES
        } else {
            usize::MAX
        };
        let bytes = buffer.len().min(most);
        self.bytes.read(&mut buffer[..bytes])
    }
}

/// Counter of the bytes read from a file.
pub(super) struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Bytes read so far.
    pub(super) fn bytes(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

struct Counted<R> {
    reader: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let bytes = self.reader.read(buffer)?;
        self.read.fetch_add(bytes as u64, Relaxed);
        Ok(bytes)
    }
}
