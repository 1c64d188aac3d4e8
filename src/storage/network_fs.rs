//! File systems whose advisory locks other machines may not see, by the numbers of the kernel's `magic.h` and of the
//! projects themselves.

/// Network, cluster and user-space file systems. FUSE may be backed by anything, also by another machine (sshfs, S3,
/// GlusterFS, virtiofs), and says nothing of it.
const KINDS: &[(u32, &str)] = &[
    (0x0000_6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x0000_517b, "SMB"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x6573_5546, "FUSE"),
    (0x0bd0_0bd0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x2003_0528, "OrangeFS"),
    (0xaad7_aaea, "PanFS"),
    (0xbeef_dead, "SNFS"),
    (0x6163_6673, "ACFS"),
    (0xa501_fcf5, "VxFS"),
    (0x786f_4256, "VirtualBox shared folders"),
    (0xbacb_acbc, "VMware shared folders"),
    (0x7c7c_6673, "Parallels shared folders"),
];

/// The name of a file system whose locks may not keep other machines out; nothing for a local one.
pub(super) fn name_of(magic: u32) -> Option<&'static str> {
    KINDS.iter().find(|(known, _)| *known == magic).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_that_other_machines_can_reach_are_known_and_local_ones_are_not() {
        for (magic, name) in [(0x6573_5546, "FUSE"), (0x0bd0_0bd0, "Lustre"), (0x0116_1970, "GFS2"), (0x6969, "NFS")] {
            assert_eq!(name_of(magic), Some(name));
        }
        // ext4, btrfs, XFS, tmpfs, ZFS, overlayfs, F2FS.
        for local in [0xef53, 0x9123_683e, 0x5846_5342, 0x0102_1994, 0x2fc1_2fc1, 0x794c_7630, 0xf2f5_2010] {
            assert_eq!(name_of(local), None, "{local:x}");
        }
    }

    #[test]
    fn no_number_stands_for_two_file_systems() {
        let mut seen = std::collections::HashSet::new();
        assert!(KINDS.iter().all(|(magic, _)| seen.insert(magic)));
    }
}
