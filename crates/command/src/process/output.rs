//! Output of a run, line by line from both streams.

use std::io::Read;
use std::process::Child;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Longest line; the rest of a longer one is another line.
const LINE_MOST: usize = 64 << 10;
/// Lines that wait for their reader; then the command waits.
const WAITING_MOST: usize = 1024;

/// A line without its end.
pub(super) struct Line {
    pub(super) text: Vec<u8>,
}

/// Lines of both streams of `child`. The channel closes when both have ended.
pub(super) fn lines(child: &mut Child) -> Receiver<Line> {
    let (sender, receiver) = sync_channel(WAITING_MOST);
    if let Some(stream) = child.stdout.take() {
        read(stream, sender.clone());
    }
    if let Some(stream) = child.stderr.take() {
        read(stream, sender);
    }
    receiver
}

/// Reads a stream on a thread of its own, which ends with the stream or its reader.
fn read(mut stream: impl Read + Send + 'static, sender: SyncSender<Line>) {
    let reading = move || {
        let mut buffer = [0; 8 << 10];
        let mut line = Vec::new();
        loop {
            let count = match stream.read(&mut buffer) {
                Ok(count) if count > 0 => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                _ => break,
            };
            for &byte in &buffer[..count] {
                // A progress bar ends its lines with a carriage return.
                let ends = byte == b'\n' || byte == b'\r';
                if !ends {
                    line.push(byte);
                }
                if (ends && !line.is_empty()) || line.len() == LINE_MOST {
                    let text = std::mem::take(&mut line);
                    if sender.send(Line { text }).is_err() {
                        return;
                    }
                }
            }
        }
        if !line.is_empty() {
            let _ = sender.send(Line { text: line });
        }
    };
    // Without a thread the output is lost, and the run fails for want of a figure.
    let _ = std::thread::Builder::new()
        .name("ronde-output".into())
        .spawn(reading);
}
