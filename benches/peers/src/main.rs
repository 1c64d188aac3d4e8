//! Appends of many streams, ours beside other stores: the same bytes on the same file system, in turns, in one run.
//!
//! `cargo run --release --locked --manifest-path benches/peers/Cargo.toml` prints the table, in about six minutes.
//! Absolute rates wander with the machine; the ratios are what counts. RocksDB is there with `--features rocksdb`, which
//! needs libclang and an installed RocksDB; `ROCKSDB_LIB_DIR` names the folder of its library.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the time")]

mod committer;
mod drive;
mod mailbox;
mod peers;
mod table;
mod workload;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;

use crate::peers::Peer;
use crate::table::Row;
use crate::workload::{Case, Outcome, Pace, Safety, line};

/// Appends per second, ours beside other stores.
#[derive(Parser)]
struct Arguments {
    /// Measure only this peer beside ours; may be given more than once
    #[arg(long, value_name = "NAME", value_parser = names())]
    only: Vec<String>,
    /// How many times each is measured, in turns; the median is shown
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How many seconds each measurement takes, without its warm-up of a quarter of that
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Where the files are written, and removed again [default: beside this program]
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// What is measured for everybody.
struct Scene {
    title: &'static str,
    safety: Safety,
    streams: usize,
    at_once: usize,
}

const SCENES: [Scene; 5] = [
    Scene { title: "durable, 1 stream", safety: Safety::Durable, streams: 1, at_once: 1 },
    Scene { title: "durable, 64 streams", safety: Safety::Durable, streams: 64, at_once: 1 },
    Scene { title: "durable, 256 streams", safety: Safety::Durable, streams: 256, at_once: 1 },
    Scene { title: "buffered, 64 streams, one by one", safety: Safety::Buffered, streams: 64, at_once: 1 },
    Scene { title: "buffered, 64 streams, 64 at a time", safety: Safety::Buffered, streams: 64, at_once: 64 },
];

impl Scene {
    /// A row for each of these that has a part in it, with nothing measured yet.
    fn rows<'a>(&self, peers: &[&'a Peer]) -> Vec<(&'a Peer, Row)> {
        let row = |peer: &&'a Peer| {
            let what = match self.safety {
                Safety::Durable => peer.durable?,
                Safety::Buffered => peer.buffered?,
            };
            Some((*peer, Row { what, wanted: self.wanted(peer), rates: Vec::new() }))
        };
        peers.iter().filter_map(row).collect()
    }

    fn wanted(&self, peer: &Peer) -> Option<f64> {
        let is_this = |(streams, _): &&(usize, f64)| self.safety == Safety::Durable && *streams == self.streams;
        peer.wanted.iter().find(is_this).map(|(_, times)| *times)
    }
}

/// In a new folder each time, so that nobody drags along what it wrote before.
fn measure(peer: &Peer, scene: &Scene, pace: Pace, dir: &Path) -> Outcome<f64> {
    let folder = tempfile::tempdir_in(dir)?;
    let Scene { safety, streams, at_once, .. } = *scene;
    let case = Case { safety, streams, at_once, folder: folder.path().to_path_buf() };
    let rate = drive::measure((peer.open)(&case)?, &case, pace)?;
    folder.close()?;
    // What one has left to be written is not for the next to wait for.
    rustix::fs::syncfs(File::open(dir)?)?;
    Ok(rate)
}

fn print_scene(scene: &Scene, peers: &[&Peer], arguments: &Arguments, dir: &Path) -> Outcome<()> {
    let measured = Duration::try_from_secs_f64(arguments.seconds)?;
    let pace = Pace { warm_up: measured / 4, measured };
    let mut rows = scene.rows(peers);
    for _ in 0..arguments.rounds {
        for (peer, row) in &mut rows {
            let rate = measure(peer, scene, pace, dir).map_err(|error| format!("{}: {error}", peer.name))?;
            row.rates.push(rate);
        }
    }
    let rows: Vec<Row> = rows.into_iter().map(|(_, row)| row).collect();
    table::print(scene.title, &rows);
    Ok(())
}

fn names() -> Vec<&'static str> {
    peers::ALL.iter().map(|peer| peer.name).collect()
}

/// Ours, and those that were asked for.
fn chosen(only: &[String]) -> Vec<&'static Peer> {
    let (ours, others) = peers::ALL.split_first().expect("ours is there");
    let is_wanted = |peer: &&Peer| only.is_empty() || only.iter().any(|name| name == peer.name);
    [ours].into_iter().chain(others.iter().filter(is_wanted)).collect()
}

fn main() -> Outcome<()> {
    let arguments = Arguments::parse();
    let beside = std::env::current_exe()?.parent().expect("a program is in a folder").to_path_buf();
    let dir = arguments.dir.clone().unwrap_or(beside);
    fs::create_dir_all(&dir)?;
    println!("an event: {} bytes; {} rounds of {} s", line().len(), arguments.rounds, arguments.seconds);
    let peers = chosen(&arguments.only);
    SCENES.iter().try_for_each(|scene| print_scene(scene, &peers, &arguments, &dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_appends_in_every_scene() {
        let dir = tempfile::tempdir().expect("a folder");
        let pace = Pace { warm_up: Duration::from_millis(1), measured: Duration::from_millis(10) };
        for scene in SCENES.map(|scene| Scene { streams: scene.streams.min(8), ..scene }) {
            for (peer, _) in scene.rows(&chosen(&[])) {
                let rate = measure(peer, &scene, pace, dir.path());
                assert!(rate.is_ok_and(|rate| rate > 0.0), "{} in {}", peer.name, scene.title);
            }
        }
        assert_eq!(fs::read_dir(dir.path()).expect("the folder").count(), 0, "everything was removed");
    }

    #[test]
    fn a_peer_asked_for_alone_stands_beside_ours() {
        let names: Vec<&str> = chosen(&["redb".into()]).iter().map(|peer| peer.name).collect();
        assert_eq!(names, ["lastword", "redb"]);
    }
}
