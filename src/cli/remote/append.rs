//! `lastword --server URL append`
//!
//! What has arrived on stdin is sent together and acknowledged line by line; what arrives meanwhile is sent next. A batch
//! is sent again until the server has it, and is appended once.

use std::io;

use lastword::Event;
use lastword::client::{Client, Producer};
use tokio::sync::mpsc;

use crate::cli::append::{self, acknowledge};
use crate::cli::failure::Failure;
use crate::cli::input::{Input, Taken, read_some};
use crate::cli::{run_to_find, session_to_find};

/// Pieces of standard input that wait while a batch is on its way.
const PIECES_MAX: usize = 32;

/// Bytes of standard input that are sent together, unless a single line is longer.
const GATHERED_BYTES: usize = 256 * 1024;

type Piece = Result<Vec<u8>, Failure>;

pub(super) async fn run(client: &Client, args: append::Args) -> Result<(), Failure> {
    let session = session_to_find(&args.id)?;
    let run = run_to_find(&args.run)?;
    let mut producer = client.resume_producer(&session, &run).await?;
    producer.durability = args.durability.into();
    let (mut pieces, mut input) = (stdin(), Input::default());
    while let Some(piece) = producer.wait_for(pieces.recv()).await? {
        let arrived = gather(piece?, &mut pieces)?;
        take(&mut producer, input.take(&arrived)).await?;
    }
    take(&mut producer, input.finish()).await
}

/// Standard input, as it comes. Reading it blocks, and nobody waits for that at the end.
fn stdin() -> mpsc::Receiver<Piece> {
    let (pieces, received) = mpsc::channel(PIECES_MAX);
    tokio::task::spawn_blocking(move || {
        let mut stdin = io::stdin().lock();
        while let Some(piece) = read_some(&mut stdin).transpose() {
            let is_last = piece.is_err();
            if pieces.blocking_send(piece).is_err() || is_last {
                break;
            }
        }
    });
    received
}

/// A piece, and what has come behind it.
fn gather(mut arrived: Vec<u8>, pieces: &mut mpsc::Receiver<Piece>) -> Piece {
    while arrived.len() < GATHERED_BYTES
        && let Ok(piece) = pieces.try_recv()
    {
        arrived.extend_from_slice(&piece?);
    }
    Ok(arrived)
}

/// Appends what was taken. What stands before a line that cannot be taken is appended and acknowledged.
async fn take(producer: &mut Producer, taken: Taken) -> Result<(), Failure> {
    for events in &taken.batches {
        send(producer, events).await?;
    }
    taken.refusal.map_or(Ok(()), Err)
}

async fn send(producer: &mut Producer, events: &[Event]) -> Result<(), Failure> {
    let appended = producer.append(events).await?;
    acknowledge(*appended.start(), *appended.end())
}
