//! The same commands through a running server: the same results, the same exit codes. One file a command.

mod append;
mod check;
mod ls;
mod new;
mod run;
mod show;
mod tail;
mod turn;

use std::path::PathBuf;

use lastword::client::{Client, ClientOptions, Token};

use super::failure::Failure;
use super::{Command, Context};

/// The server that is asked.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) address: String,
    pub(super) token_file: Option<PathBuf>,
}

impl Server {
    fn client(&self) -> Result<Client, Failure> {
        let token = self.token_file.as_deref().map(Token::read).transpose();
        let token = token.map_err(|reason| Failure::Usage(format!("the server's token is not to be had: {reason}")))?;
        Ok(Client::new(&self.address, ClientOptions { token, ..ClientOptions::default() })?)
    }
}

/// Does it through a server.
pub(super) fn run(context: &Context, server: Server, command: Command) -> Result<(), Failure> {
    let client = server.client()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|cause| Failure::Storage(format!("could not start to ask a server: {cause}")))?;
    let done = runtime.block_on(ask(context, &client, command));
    // Somebody may still wait for standard input, or for a reader of standard output.
    runtime.shutdown_background();
    done
}

async fn ask(context: &Context, client: &Client, command: Command) -> Result<(), Failure> {
    match command {
        Command::New(args) => new::run(context, client, args).await,
        Command::Ls(_) => ls::run(context, client).await,
        Command::Show(args) => show::run(context, client, args).await,
        Command::Turn(args) => turn::run(context, client, args).await,
        Command::Run(args) => run::run(context, client, args).await,
        Command::Append(args) => append::run(client, args).await,
        Command::Tail(args) => tail::run(client, args).await,
        Command::Check(args) => check::run(context, client, args).await,
        Command::Repair(_) => Err(at_home("repair")),
        Command::Bench(_) => Err(at_home("bench")),
        Command::Serve(_) => Err(at_home("serve")),
    }
}

fn at_home(command: &str) -> Failure {
    Failure::Usage(format!(
        "`{command}` works on a data directory: use it there, without --server (and without LASTWORD_SERVER)"
    ))
}
