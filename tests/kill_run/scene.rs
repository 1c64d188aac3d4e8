//! A data directory with a session and an agent, which is a shell script: in the first run it does what the test wants, in
//! every other it gives a plain answer. Each time it gets to work it notes what it was told.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::data::{Data, PROMPT, RUN, SESSION};
use crate::process::Process;
use crate::table::{Signal, marked, signal, wait_until};

/// What the agent answers in every run but the first.
pub(crate) const PLAIN_ANSWER: &str = "Gut.";

/// What each agent can do: `say EVENT PAYLOAD`, `token TEXT`, tell the test that it is so far, and stay until somebody
/// ends it.
const SKILLS: &str = r#"
IFS= read -r input
printf '%s\n' "$input" >> "$SCENE/work"
say() { printf '{"event":"%s","payload":%s}\n' "$1" "$2"; }
token() { say token "{\"text\":\"$1\"}"; }
reached() { : > "$SCENE/reached"; }
stay() { reached; sleep 600; }
"#;

/// Where a test takes place.
pub(crate) struct Scene {
    pub(crate) data: Data,
}

impl Scene {
    /// An agent that does this in the run `r1`.
    pub(crate) fn with_agent(deed: &str) -> Self {
        Scene::new("agent", deed)
    }

    /// The demo answers, and the agent if it is asked for.
    pub(crate) fn with_demo() -> Self {
        Scene::new("demo", ":")
    }

    fn new(default_runner: &str, deed: &str) -> Self {
        let scene = Scene { data: Data::nowhere() };
        scene.data.must(&["new", "--id", SESSION]);
        let script = scene.place("agent.sh");
        let plain = format!("*) token {PLAIN_ANSWER} ;;");
        let text = format!("{SKILLS}case $LASTWORD_RUN_ID in\n{RUN})\n{deed}\n;;\n{plain}\nesac\n");
        fs::write(&script, text).expect("the scene can be written");
        scene.configure(&format!(
            "default_runner = {default_runner:?}\n\
             [runs]\nfirst_pause_seconds = 600\npause_max_seconds = 600\n\
             [runners.agent]\nkind = \"command\"\ncommand = [\"/bin/sh\", {script:?}]\nenv = {{ SCENE = {:?} }}\n",
            scene.place("")
        ));
        scene
    }

    pub(crate) fn configure(&self, text: &str) {
        let path = self.data.root().join("_lastword.toml");
        fs::write(&path, text).expect("the data can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("the file is ours");
    }

    /// Something beside the data directory.
    fn place(&self, name: &str) -> PathBuf {
        self.data.root().parent().expect("the data has a home").join(name)
    }

    /// Starts the run `r1`, whose events are printed.
    pub(crate) fn start(&self) -> Process {
        Process::start(self.run_command(&["--json"]))
    }

    /// The command that starts the run `r1`.
    pub(crate) fn run_command(&self, more: &[&str]) -> Command {
        self.data.command(&[&["run", SESSION, "--message", PROMPT, "--run", RUN], more].concat())
    }

    /// The same, with pipes that the test reads itself, or does not.
    pub(crate) fn piped(&self, more: &[&str]) -> std::process::Child {
        let mut command = self.run_command(more);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("lastword can be started")
    }

    /// Waits until the agent has told that it is so far.
    pub(crate) fn wait_until_reached(&self) {
        wait_until("the agent is so far", || self.place("reached").exists());
    }

    /// Lets an agent go on that waits for the file `go`.
    pub(crate) fn let_go(&self) {
        fs::write(self.place("go"), "").expect("the scene can be written");
    }

    /// The processes of the agent, wherever they are.
    pub(crate) fn survivors(&self) -> Vec<u32> {
        marked(&format!("SCENE={}", self.place("").display()))
    }

    pub(crate) fn wait_until_nobody_is_left(&self) {
        wait_until("the agent's processes are gone", || self.survivors().is_empty());
    }

    /// The notes of process groups.
    pub(crate) fn notes(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.data.root().join("_groups")).into_iter().flatten();
        entries.map(|entry| entry.expect("a folder can be listed").path()).collect()
    }

    /// The number of the one group that is noted.
    pub(crate) fn noted_group(&self) -> u32 {
        let notes = self.notes();
        assert_eq!(notes.len(), 1, "there is one note");
        let text = fs::read_to_string(&notes[0]).expect("a note can be read");
        let note: Value = serde_json::from_str(&text).expect("a note is JSON");
        note["id"].as_u64().and_then(|id| id.try_into().ok()).expect("a note has a number")
    }

    /// What the agent was told, each time it got to work for a run.
    pub(crate) fn work(&self, run: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.place("work")).unwrap_or_default();
        let told = text.lines().map(|line| serde_json::from_str(line).expect("the agent is told JSON"));
        told.filter(|told: &Value| told["run_id"] == run).collect()
    }

    /// The events of a run as its journal has them; none if there is no such run.
    pub(crate) fn journalled(&self, run: &str) -> Vec<String> {
        let ended = self.data.ask(&["tail", SESSION, run]);
        assert!(matches!(ended.code(), Some(0 | 1)), "tail failed: {}", ended.stderr);
        ended.lines
    }

    /// The session after a full read.
    pub(crate) fn shown(&self) -> Value {
        let lines = self.data.must(&["--json", "show", SESSION]).lines;
        serde_json::from_str(&lines.concat()).expect("show prints JSON")
    }
}

impl Drop for Scene {
    /// A test that fails leaves nobody behind.
    fn drop(&mut self) {
        self.survivors().into_iter().for_each(|id| signal(id, Signal::KILL));
    }
}

/// An event of a journal's line.
pub(crate) fn event(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|cause| panic!("{line:?} is no event: {cause}"))
}

/// The names of the events in these lines.
pub(crate) fn names(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| event(line)["event"].as_str().expect("an event has a name").to_owned()).collect()
}

/// The next so many lines that a run prints.
pub(crate) fn next_lines(run: &Process, count: usize) -> Vec<String> {
    (0..count).map_while(|_| run.next_line()).collect()
}
