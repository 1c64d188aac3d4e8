//! How the files that a process may have open are shared out, so that no use of them starves another.
//!
//! What is not shared out is the store's own reserve: the lock, directories, the commit log, abandoned journals, files
//! that are being replaced or read, and what the process itself holds.

/// The files that each use may have open, of all that the process may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFileShares {
    /// Journals that are appended to.
    pub journals: usize,
    /// Journals that readers hold open between two reads.
    pub readers: usize,
    /// Connections.
    pub connections: usize,
    /// Pipes of commands.
    pub commands: usize,
}

/// All shares are counted in such parts of the files that the process may open.
const PARTS: usize = 32;

impl OpenFileShares {
    /// The shares of a program that serves no connections: a quarter is in reserve.
    pub fn of_library(open_files_max: usize) -> Self {
        let parts = |count: usize| (open_files_max / PARTS * count).max(1);
        OpenFileShares { journals: parts(16), readers: 0, connections: 0, commands: parts(8) }
    }

    /// The shares of a server: a quarter is in reserve.
    pub fn of_server(open_files_max: usize) -> Self {
        let parts = |count: usize| (open_files_max / PARTS * count).max(1);
        OpenFileShares { journals: parts(6), readers: parts(3), connections: parts(12), commands: parts(3) }
    }

    /// All of them together.
    pub fn total(&self) -> usize {
        self.journals + self.readers + self.connections + self.commands
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_files_is_the_stores_own() {
        for limit in [256, 1024, 20_000, 1 << 20] {
            for shares in [OpenFileShares::of_library(limit), OpenFileShares::of_server(limit)] {
                assert!(shares.total() <= limit / 4 * 3, "{limit}: {shares:?}");
                assert!(shares.total() >= limit / 2, "{limit}: {shares:?}");
            }
        }
    }

    #[test]
    fn where_hardly_any_file_can_be_opened_each_use_gets_one() {
        let shares = OpenFileShares::of_server(20);
        assert_eq!((shares.journals, shares.connections, shares.readers, shares.commands), (1, 1, 1, 1));
    }
}
