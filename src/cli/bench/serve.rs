//! The server beside what it stands on: the same appends without HTTP, the same bytes over bare sockets.
//!
//! The server works in this process, on threads of its own; one thread is all of its clients.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lastword::http::{Server, ServerOptions};
use lastword::run::{RunOptions, Runners, Supervisor};
use lastword::{CacheOptions, Durability, Event, Run};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_local};

use super::Outcomes;
use super::driver::{driven, write_and_sync};
use super::rounds::{micros_each, timed};
use super::scene::{BATCH, Bench, Scene, TOKEN, line_of};
use super::table::{Figures, Line, Target, Unit, grouped};
use super::wire::{Connection, request};

const CONNECTIONS: [usize; 3] = [1, 8, 100];
/// For how long each side of a round appends.
const SLICE: Duration = Duration::from_millis(100);
const SLICES: usize = 15;
const FOLLOWERS: usize = 100;
const LATE_FOLLOWERS: usize = 50;
const LONG_RUN_BYTES: usize = 20_000_000;

pub(super) fn measure(bench: &Bench<'_>) -> Outcomes<()> {
    let scene = bench.scene("serve", CacheOptions::default())?;
    let house = House::open(&scene)?;
    let most = bench.size(CONNECTIONS[2]);
    let (over_http, direct) = (scene.begin_runs(most)?, scene.begin_runs(most)?);
    for count in CONNECTIONS.map(|count| count.min(most)) {
        bench.table.add(&house.appends(bench, &over_http[..count], &direct[..count])?)?;
    }
    bench.table.add(&house.fan_out(bench)?)?;
    bench.table.add(&house.catch_up(bench)?)
}

/// A server, and the clients' thread.
struct House<'a> {
    scene: &'a Scene,
    address: SocketAddr,
    clients: Runtime,
    /// Ended when this goes.
    _ask_to_end: oneshot::Sender<()>,
    _serving: Runtime,
}

impl<'a> House<'a> {
    fn open(scene: &'a Scene) -> Outcomes<Self> {
        let serving = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let clients = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let options = ServerOptions { data: scene.data.clone(), listen, ..ServerOptions::default() };
        let server = serving.block_on(async {
            let supervisor = Supervisor::new(scene.store.clone(), Runners::default(), RunOptions::default())?;
            Ok::<_, Box<dyn std::error::Error>>(Server::bind(scene.store.clone(), supervisor, options).await?)
        })?;
        let address = server.address();
        let (_ask_to_end, asked) = oneshot::channel::<()>();
        serving.spawn(server.serve(async move { drop(asked.await) }));
        Ok(House { scene, address, clients, _ask_to_end, _serving: serving })
    }

    fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        LocalSet::new().block_on(&self.clients, work)
    }

    /// One connection a stream, each with one append under way.
    fn appends(&self, bench: &Bench<'_>, runs: &[Run], direct: &[Run]) -> Outcomes<Line> {
        let (count, slice) = (runs.len(), SLICE.mul_f64(bench.scale));
        let requests: Vec<Rc<[u8]>> = runs.iter().map(|run| durable_append(run).into()).collect();
        let connections = self.block_on(open_all(self.address, count))?;
        let mut connections = Some(connections);
        let ours = || {
            let ready = connections.take().ok_or("the connections of the round before")?;
            let (taken, back) = self.block_on(append_for(slice, ready, &requests))?;
            connections = Some(back);
            Ok(taken)
        };
        let figures = bench.rounds.side_by_side(SLICES, ours, || driven(direct, slice))?.as_speed();
        let plural = if count == 1 { "" } else { "s" };
        let operation = format!("HTTP append, durable, {count} connection{plural}");
        Ok(Line { operation, limit: "the same without HTTP", figures, target: Target::None })
    }

    /// From a durable append until the last of many followers has the event.
    fn fan_out(&self, bench: &Bench<'_>) -> Outcomes<Line> {
        let followers = bench.size(FOLLOWERS);
        let run = self.scene.begin_run()?;
        let append = durable_append(&run);
        let follow = request("GET", &events_path(&run), "accept: text/event-stream\r\n", "");
        let mut crowd = self.block_on(Crowd::gather(self.address, followers, &follow))?;
        let raw = RawFan::start(followers, line_of(&run), self.scene.raw_file("fan")?)?;
        let mut raw_crowd = self.block_on(Crowd::gather(raw.address, followers, b"follow\n"))?;
        // Everybody shares the run's tail from here on.
        self.block_on(crowd.round(&append, b"event: token\n"))?;
        let ours = || self.block_on(crowd.round(&append, b"event: token\n"));
        let limit = || self.block_on(raw_crowd.round(b"append\n", b"\"}\n"));
        let figures = bench.rounds.side_by_side(bench.size(301), ours, limit)?;
        let operation = format!("append to {followers} followers, p50");
        Ok(Line { operation, limit: "write + fdatasync, bytes to as many sockets", figures, target: Target::None })
    }

    /// Many read a long run from its beginning, at the same time.
    fn catch_up(&self, bench: &Bench<'_>) -> Outcomes<Line> {
        let (followers, run) = (bench.size(LATE_FOLLOWERS), self.long_run(bench.size(LONG_RUN_BYTES))?);
        let headers = "accept: text/event-stream\r\nconnection: close\r\n";
        let follow: Rc<[u8]> = request("GET", &events_path(&run), headers, "").into();
        let bytes_each = self.block_on(read_all(self.address, 1, follow.clone()))?;
        let megabytes = (bytes_each * followers) as f64 / 1e6;
        let ours = || {
            let micros = timed(1, || self.block_on(read_all(self.address, followers, follow.clone())))?;
            Ok(micros / megabytes)
        };
        let sent: Arc<[u8]> = vec![b'x'; bytes_each].into();
        let limit = || Ok(raw_catch_up(self, &sent, followers)? / megabytes);
        let figures = bench.rounds.side_by_side(7, ours, limit)?.as_speed();
        let figures = Figures { unit: Unit::MegabytesPerSecond, ..figures };
        let operation = format!("catch-up of {followers} followers, {} MB each", grouped(bytes_each / 1_000_000));
        Ok(Line { operation, limit: "as many bytes over bare sockets", figures, target: Target::None })
    }

    /// A run that has ended, with a journal of about so many bytes.
    fn long_run(&self, bytes: usize) -> Outcomes<Run> {
        let run = self.scene.begin_run()?;
        let batch = vec![Event::token(TOKEN); BATCH];
        for _ in 0..bytes / (line_of(&run).len() * BATCH) {
            run.append_all(&batch, Durability::Buffered)?;
        }
        run.finish(lastword::Outcome::Completed)?;
        Ok(run)
    }
}

fn events_path(run: &Run) -> String {
    format!("/v1/sessions/{}/runs/{}/events", run.session(), run.id())
}

fn durable_append(run: &Run) -> Vec<u8> {
    let line = format!("{{\"event\":\"token\",\"payload\":{{\"text\":\"{TOKEN}\"}}}}\n");
    let path = format!("{}?durability=durable", events_path(run));
    request("POST", &path, "content-type: application/x-ndjson\r\n", &line)
}

async fn open_all(address: SocketAddr, count: usize) -> Outcomes<Vec<Connection>> {
    let mut connections = Vec::new();
    for _ in 0..count {
        connections.push(Connection::open(address).await?);
    }
    Ok(connections)
}

/// All connections append for a slice of time. Gives the microseconds an append took, and the connections.
async fn append_for(
    slice: Duration,
    connections: Vec<Connection>,
    requests: &[Rc<[u8]>],
) -> Outcomes<(f64, Vec<Connection>)> {
    let begin = Instant::now();
    let append = |(mut connection, request): (Connection, Rc<[u8]>)| async move {
        let mut done = 0;
        while begin.elapsed() < slice || done == 0 {
            connection.ask(&request).await.map_err(|cause| cause.to_string())?;
            done += 1;
        }
        Ok::<_, String>((done, connection))
    };
    let pairs = connections.into_iter().zip(requests.iter().cloned());
    let tasks: Vec<_> = pairs.map(|pair| spawn_local(append(pair))).collect();
    let (mut done, mut back) = (0, Vec::new());
    for task in tasks {
        let (count, connection) = task.await??;
        done += count;
        back.push(connection);
    }
    Ok((micros_each(begin.elapsed(), done), back))
}

/// Followers who wait, and one who appends.
struct Crowd {
    appender: Connection,
    followers: Vec<Connection>,
}

impl Crowd {
    async fn gather(address: SocketAddr, count: usize, follow: &[u8]) -> Outcomes<Self> {
        let appender = Connection::open(address).await?;
        let mut followers = open_all(address, count).await?;
        for follower in &mut followers {
            follower.send(follow).await?;
        }
        Ok(Crowd { appender, followers })
    }

    /// Appends, and waits until everybody has the event, known by a text.
    async fn round(&mut self, append: &[u8], text: &[u8]) -> Outcomes<f64> {
        let begin = Instant::now();
        self.appender.ask(append).await?;
        for follower in &mut self.followers {
            follower.read_until(text).await?;
        }
        Ok(micros_each(begin.elapsed(), 1))
    }
}

/// Reads everything that so many are sent. Gives how many bytes each of them got.
async fn read_all(address: SocketAddr, count: usize, follow: Rc<[u8]>) -> Outcomes<usize> {
    let mut tasks = Vec::new();
    for mut connection in open_all(address, count).await? {
        let follow = follow.clone();
        tasks.push(spawn_local(async move {
            connection.send(&follow).await.map_err(|cause| cause.to_string())?;
            connection.read_all().await.map_err(|cause| cause.to_string())
        }));
    }
    let mut bytes = 0;
    for task in tasks {
        bytes += task.await??;
    }
    Ok(bytes / count)
}

/// The fewest system calls that append and tell everybody.
struct RawFan {
    address: SocketAddr,
}

impl RawFan {
    /// Waits for one who appends and so many who follow, in this order, and ends when the first hangs up.
    fn start(followers: usize, line: Vec<u8>, mut file: File) -> Outcomes<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        thread::spawn(move || {
            let mut appender = accept(&listener)?;
            let mut crowd = (0..followers).map(|_| accept(&listener)).collect::<io::Result<Vec<_>>>()?;
            let mut asked = [0; 1024];
            while appender.read(&mut asked)? > 0 {
                write_and_sync(&mut file, &line)?;
                crowd.iter_mut().try_for_each(|follower| follower.write_all(&line))?;
                appender.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
            }
            Ok::<_, io::Error>(())
        });
        Ok(RawFan { address })
    }
}

fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    let (stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends the same bytes to each of so many, a thread each, and waits until they have them.
fn raw_catch_up(house: &House<'_>, sent: &Arc<[u8]>, count: usize) -> Outcomes<f64> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    let sent = sent.clone();
    thread::spawn(move || {
        for _ in 0..count {
            let (mut stream, sent) = (accept(&listener)?, sent.clone());
            // What is not read would break the connection off at its end.
            thread::spawn(move || stream.read(&mut [0; 16]).and_then(|_| stream.write_all(&sent)));
        }
        Ok::<_, io::Error>(())
    });
    timed(1, || house.block_on(read_all(address, count, Rc::from(&b"all\n"[..]))))
}
