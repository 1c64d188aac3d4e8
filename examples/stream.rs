//! Streams an answer into `lastword-data` while somebody follows it, and shows what was kept.

use std::io::Write;

use lastword::{After, Event, NewSession, Options, Outcome, Store, UserTurn};

const ANSWER: [&str; 6] = ["To the ", "seaside, ", "where the ", "last word ", "is never ", "lost."];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::open("lastword-data", Options::default())?;
    let id = store.create(NewSession::titled("Plan a trip"))?;
    let run = store.begin_run(&id, UserTurn::text("Where should we go?"))?;

    let follow = store.follow(&id, run.id(), After::Start)?;
    let reader = std::thread::spawn(move || {
        for event in follow.flatten() {
            println!("event {:>2}  {:<9}  {}", event.seq.unwrap_or(0), event.name, event.payload());
            let _ = std::io::stdout().flush();
        }
    });

    run.append(Event::reasoning("They like the sea."))?;
    for piece in ANSWER {
        run.append(Event::token(piece))?;
    }
    run.finish(Outcome::Completed)?;
    reader.join().expect("the reader does not panic");

    println!("\nkept in lastword-data/{id}.json:");
    for row in store.get_session(&id)?.messages() {
        println!("  {}: {}", row.role(), row.content());
    }
    Ok(())
}
