//! A disk of its own, so small that it can be filled: a tmpfs in a mount namespace, which goes with the process.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SMALL_DISK: &str = "LASTWORD_SMALL_DISK";

/// Mounts the disk and becomes the program behind it.
const MOUNT: &str = r#"mount -t tmpfs -o "size=$1,mode=700" tmpfs "$2" && shift 2 && exec "$@""#;

/// As root, and as anybody where the kernel lets users have namespaces.
const NAMESPACES: [&[&str]; 2] = [&["unshare", "--mount"], &["unshare", "--map-root-user", "--mount"]];

const NEEDED: &str = "this test needs a disk that it can fill: run it as root with CAP_SYS_ADMIN (in a container: \
                      `--cap-add SYS_ADMIN`), or where `unshare --map-root-user --mount` is allowed";

/// Runs this test again, in a process of its own that has a small disk, and there the check. `test` is its full name.
pub(crate) fn on_a_small_disk(test: &str, size: &str, check: impl FnOnce(&Path)) {
    if let Some(disk) = env::var_os(SMALL_DISK) {
        return check(Path::new(&disk));
    }
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build directory can be written");
    let namespace = allowed_namespace(home.path());
    let mut command = in_namespace(namespace, size, home.path());
    command.arg(env::current_exe().expect("this program has a file")).args(["--exact", test, "--nocapture"]);
    let output = command.env(SMALL_DISK, home.path()).output().expect("it can be started");
    let said = [output.stdout.as_slice(), &output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "there is no test of this name: {said}");
}

fn in_namespace(namespace: &[&str], size: &str, disk: &Path) -> Command {
    let mut command = Command::new(namespace[0]);
    command.args(&namespace[1..]).args(["sh", "-c", MOUNT, "sh", size]).arg(disk);
    command
}

/// A way to mount a disk that works on this machine.
fn allowed_namespace(disk: &Path) -> &'static [&'static str] {
    let mut refusals = String::new();
    for namespace in NAMESPACES {
        match in_namespace(namespace, "64k", disk).arg("true").output() {
            Ok(Output { status, .. }) if status.success() => return namespace,
            Ok(output) => refusals.push_str(&format!("\n{namespace:?}: {}", String::from_utf8_lossy(&output.stderr))),
            Err(cause) => refusals.push_str(&format!("\n{namespace:?}: {cause}")),
        }
    }
    panic!("{NEEDED}{refusals}");
}

/// A file that only takes room, until it is dropped.
pub(crate) struct Filler {
    path: PathBuf,
}

impl Filler {
    /// Takes so many bytes.
    pub(crate) fn of(disk: &Path, bytes: usize) -> Self {
        let path = disk.join(format!("filler-{bytes}"));
        fs::write(&path, vec![b'.'; bytes]).expect("there is room for the filler");
        Filler { path }
    }

    /// Takes all there is.
    pub(crate) fn of_everything(disk: &Path) -> Self {
        let path = disk.join("filler");
        let mut file = fs::File::create(&path).expect("a file can be created");
        while file.write_all(&[b'.'; 4096]).is_ok() {}
        Filler { path }
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
