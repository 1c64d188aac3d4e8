//! Paths on a simulated disk: symbolic links are followed, and permissions are checked on the way.

use std::collections::VecDeque;
use std::io;
use std::path::{Component, Path};

use super::image::{Image, Inode, ROOT};

/// How many links a path may lead over, as on Linux.
const LINKS_MAX: usize = 40;

/// The user who may do anything.
pub(super) const SUPERUSER: u32 = 0;

/// What a user may do with a file or directory: bits of a Unix mode.
pub(super) const READ: u32 = 4;
pub(super) const WRITE: u32 = 2;
pub(super) const SEARCH: u32 = 1;

/// What a path leads to.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The directory that the last part stands in, and its name there; none for the root.
    pub(super) name: Option<(u64, String)>,
    /// What has that name.
    pub(super) node: Option<u64>,
}

impl Place {
    /// The directory and the name; the root has none.
    pub(super) fn named(&self) -> io::Result<(u64, String)> {
        self.name.clone().ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    pub(super) fn existing(&self) -> io::Result<u64> {
        self.node.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Image {
    /// What is at a path, for the one who sets the disk up: without regard to permissions.
    pub(super) fn find(&self, path: &Path) -> io::Result<Option<u64>> {
        match self.resolve(path, SUPERUSER, true) {
            Ok(place) => Ok(place.node),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(cause),
        }
    }

    /// Walks along a path as this user. A link at its end is followed if that is asked for.
    pub(super) fn resolve(&self, path: &Path, user: u32, follows_last: bool) -> io::Result<Place> {
        let mut parts = parts_of(path);
        let (mut dir, mut links) = (ROOT, 0);
        while let Some(name) = parts.pop_front() {
            let names = self.names(dir)?;
            self.check(dir, user, SEARCH)?;
            let found = names.get(&name).copied();
            let is_last = parts.is_empty();
            match found.map(|number| self.node(number)).transpose()?.map(|node| &node.inode) {
                Some(Inode::Link(target)) if !is_last || follows_last => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(too_many_links());
                    }
                    dir = if target.is_absolute() { ROOT } else { dir };
                    parts = parts_of(target).into_iter().chain(parts).collect();
                }
                Some(Inode::Dir { .. }) if !is_last => dir = found.unwrap_or(dir),
                None if !is_last => return Err(io::ErrorKind::NotFound.into()),
                _ if !is_last => return Err(io::ErrorKind::NotADirectory.into()),
                _ => return Ok(Place { name: Some((dir, name)), node: found }),
            }
        }
        Ok(Place { name: None, node: Some(dir) })
    }

    /// Whether a user may do this with a file or directory.
    pub(super) fn check(&self, number: u64, user: u32, wanted: u32) -> io::Result<()> {
        let node = self.node(number)?;
        let granted = if node.owner == user { node.mode >> 6 } else { node.mode };
        match user == SUPERUSER || granted & wanted == wanted {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(EACCES)),
        }
    }
}

const EACCES: i32 = 13;

/// ELOOP.
pub(super) fn too_many_links() -> io::Error {
    io::Error::from_raw_os_error(40)
}

fn parts_of(path: &Path) -> VecDeque<String> {
    let name = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        _ => None,
    };
    path.components().filter_map(name).collect()
}
