//! `lastword --server URL tail`

use lastword::client::{Client, ClientError, EventLines, FollowOptions, Told};
use lastword::{RunId, SessionId};

use crate::cli::failure::Failure;
use crate::cli::{output, run_to_find, session_to_find, tail};

/// Bytes of lines that are printed together.
const GATHERED_BYTES: usize = 64 * 1024;

pub(super) async fn run(client: &Client, args: tail::Args) -> Result<(), Failure> {
    let session = session_to_find(&args.id)?;
    let run = run_to_find(&args.run)?;
    match args.follow {
        true => follow(client, &session, &run, args.after).await,
        false => print(client, &session, &run, args.after).await,
    }
}

async fn print(client: &Client, session: &SessionId, run: &RunId, after_seq: u64) -> Result<(), Failure> {
    let mut lines = match client.events(session, run, after_seq).await {
        // There is nothing behind it.
        Err(error) if error.code() == Some("ahead") => return Ok(()),
        lines => lines?,
    };
    loop {
        // What came before a failure is printed.
        let (text, rest) = gather(&mut lines).await;
        output::all(|out| out.write_all(text.as_bytes()))?;
        if !rest? {
            return Ok(());
        }
    }
}

/// Lines to be printed together, and whether there may be more.
async fn gather(lines: &mut EventLines) -> (String, Result<bool, ClientError>) {
    let mut text = String::new();
    while text.len() < GATHERED_BYTES {
        match lines.next().await {
            Ok(Some(line)) => text.extend([line.as_str(), "\n"]),
            Ok(None) => return (text, Ok(false)),
            Err(error) => return (text, Err(error)),
        }
    }
    (text, Ok(true))
}

async fn follow(client: &Client, session: &SessionId, run: &RunId, after_seq: u64) -> Result<(), Failure> {
    let mut follow = client.follow(session, run, after_seq, FollowOptions::default());
    let mut printed = 0;
    while let Some(told) = follow.next().await? {
        match told {
            // A server that begins with the first event all the same changes nothing about what was asked for.
            Told::Event(event) if event.seq.is_none_or(|seq| seq > after_seq) => {
                printed += 1;
                output::line(&event.line)?;
            }
            Told::Snapshot { .. } if printed > 0 => {
                output::aside("the server does not know what was printed so far: everything follows once more");
            }
            _ => {}
        }
    }
    Ok(())
}
