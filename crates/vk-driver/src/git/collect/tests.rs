use std::fs;

use super::*;

const DAY: Duration = Duration::from_secs(86_400);
const KIB: u64 = 1024;

fn dated(path: &Path, days: u32) {
    let file = fs::File::open(path).unwrap();
    file.set_modified(SystemTime::now() - days * DAY).unwrap();
}

fn file(path: &Path, days: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, [1; 20 << 10]).unwrap();
    dated(path, days);
}

struct Host {
    dir: tempfile::TempDir,
    room: Room,
}

impl Host {
    fn new(total: u64) -> Host {
        let dir = tempfile::tempdir().unwrap();
        let bounds = SourceBounds {
            total,
            project: total,
            ..SourceBounds::default()
        };
        let root = dir.path().to_owned();
        Host {
            dir,
            room: Room { root, bounds },
        }
    }

    /// A mirror that was used so many days ago, with an object for each of these.
    fn repository(&self, name: &str, days: u32, objects: &[u32]) {
        file(&self.room.mirror(name).join("HEAD"), days);
        for days in objects {
            file(&self.room.lfs(name).join(format!("server/{days}")), *days);
        }
        for lock in [self.room.mirror_lock(name), self.room.lfs_lock(name)] {
            fs::create_dir_all(lock.parent().unwrap()).unwrap();
            fs::write(&lock, "").unwrap();
            dated(&lock, days);
        }
    }

    fn collect(&self, really: bool) -> CollectedSources {
        collect_sources(self.dir.path(), self.room.bounds, 30 * DAY, really)
    }

    fn has(&self, path: &str) -> bool {
        self.dir.path().join(path).exists()
    }
}

#[test]
fn what_was_not_used_for_long_goes_and_is_told_before_as_after() {
    let host = Host::new(u64::MAX);
    host.repository("old", 40, &[41]);
    host.repository("used", 1, &[2, 50]);
    host.repository("held", 60, &[61]);
    let held = Lock::try_take(&host.room.mirror_lock("held")).unwrap();
    assert!(held.is_some());
    let would = host.collect(false);
    assert!(host.has("old.git") && host.has("lfs/used/server/50"));
    let did = host.collect(true);
    assert_eq!(would, did);
    assert_eq!((did.mirrors.count, did.objects.count), (1, 2));
    assert!(did.mirrors.bytes >= 40 * KIB && did.objects.bytes >= 40 * KIB);
    assert!(!host.has("old.git") && !host.has("lfs/old") && !host.has("old.size"));
    assert!(host.has("used.git") && host.has("lfs/used/server/2"));
    assert!(!host.has("lfs/used/server/50"));
    // A job has the mirror, and names of its own for the objects it uses.
    assert!(host.has("held.git") && !host.has("lfs/held/server/61"));
    assert_eq!(host.collect(true), CollectedSources::default());
}

#[test]
fn what_is_beyond_the_bound_goes_though_it_was_used_of_late() {
    let host = Host::new(70 * KIB);
    for (name, days) in [("a", 3), ("b", 2), ("c", 1)] {
        host.repository(name, days, &[]);
    }
    let did = host.collect(true);
    assert_eq!(did.mirrors.count, 1);
    assert!(!host.has("a.git") && host.has("b.git") && host.has("c.git"));
}

#[test]
fn trees_of_another_start_and_unused_ones_go_and_one_in_use_stays() {
    let host = Host::new(u64::MAX);
    let boot = fs::read_to_string(BOOT_ID).unwrap();
    let tree = |name: &str, boot: &str, days: u32| {
        let dir = host.dir.path().join("trees").join(name);
        file(&dir.join("root/file"), days);
        fs::write(dir.join("whole"), format!("{} 3\n", boot.trim())).unwrap();
        dated(&dir.join("whole"), days);
        dir
    };
    tree("fresh", &boot, 1);
    tree("idle", &boot, 31);
    tree("rebooted", "another", 2);
    tree("making", "another", 0);
    let held = tree("held", "another", 50);
    let lock = Lock::try_take(&lock_of(&held)).unwrap();
    assert!(lock.is_some());
    assert_eq!(host.collect(false).trees.count, 2);
    assert_eq!(host.collect(true).trees.count, 2);
    let left: Vec<_> = ["fresh", "idle", "rebooted", "making", "held"]
        .into_iter()
        .filter(|name| host.has(&format!("trees/{name}")))
        .collect();
    assert_eq!(left, ["fresh", "making", "held"]);
}

#[test]
fn what_dead_processes_were_making_goes_and_what_is_being_made_stays() {
    let host = Host::new(u64::MAX);
    let at = |name: &str| host.dir.path().join(name);
    host.repository("p", 0, &[]);
    file(&at("dead.new/HEAD"), 0);
    file(&at("alive.new/HEAD"), 0);
    let lock = Lock::try_take(&at("alive.lock")).unwrap();
    assert!(lock.is_some());
    file(&at("lfs/p/server/.tmpold"), 2);
    file(&at("lfs/p/server/.tmpnew"), 0);
    file(&at(".tmpsize"), 2);
    let did = host.collect(true);
    assert_eq!(did.leftovers.count, 3);
    assert!(!host.has("dead.new") && host.has("alive.new"));
    assert!(!host.has("lfs/p/server/.tmpold") && host.has("lfs/p/server/.tmpnew"));
    assert!(!host.has(".tmpsize"));
}
