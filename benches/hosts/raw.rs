//! Raw sockets between ranks 0 and 1, as the measure of what the network and the kernel can do.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::{Failure, Options, Report, measure};

/// Longest wait for the other rank.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs the mode `exchange` or `round-trip`.
pub(crate) fn run(options: &Options) -> Result<Report, Failure> {
    let rank: usize = std::env::var("HOROVOD_RANK")?.parse()?;
    let address = std::env::var("RONDE_TCP_SERVER")?;
    let mut stream = match rank {
        0 => TcpListener::bind(address)?.accept()?.0,
        _ => connect(&address)?,
    };
    stream.set_nodelay(true)?;
    let measured = if options.mode == "exchange" {
        let bytes = size_of::<f32>() * options.elements.iter().sum::<usize>();
        let (sent, mut received) = (vec![1u8; bytes], vec![0u8; bytes]);
        measure(options, || {
            std::thread::scope(|scope| {
                let writing = scope.spawn(|| (&stream).write_all(&sent));
                (&stream).read_exact(&mut received)?;
                writing.join().expect("it does not panic")?;
                Ok(())
            })
        })?
    } else {
        let mut bytes = [0; 4];
        measure(options, || {
            if rank == 0 {
                stream.write_all(&bytes)?;
                stream.read_exact(&mut bytes)?;
            } else {
                stream.read_exact(&mut bytes)?;
                stream.write_all(&bytes)?;
            }
            Ok(())
        })?
    };
    let own = measured.step_ms.clone();
    Ok(measured.report(rank, options, own))
}

fn connect(address: &str) -> Result<TcpStream, Failure> {
    let began = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return Ok(stream),
            Err(error) if began.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
