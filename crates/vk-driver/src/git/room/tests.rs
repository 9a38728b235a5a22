use super::*;

const MIB: u64 = 1 << 20;

/// A host with these repositories, used one after the other: the first is the one used longest ago.
fn host(bounds: SourceBounds, names: &[(&str, u64)]) -> (tempfile::TempDir, Room) {
    let dir = tempfile::tempdir().unwrap();
    let room = Room {
        root: dir.path().to_owned(),
        bounds,
    };
    for (number, (name, mib)) in names.iter().enumerate() {
        fs::create_dir(room.mirror(name)).unwrap();
        let bytes = vec![1; usize::try_from(mib * MIB).unwrap()];
        fs::write(room.mirror(name).join("pack"), bytes).unwrap();
        drop(Lock::try_take(&room.mirror_lock(name)).unwrap().unwrap());
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1000 + number as u64);
        let lock = fs::File::options().write(true).open(room.mirror_lock(name));
        lock.unwrap().set_modified(at).unwrap();
        room.measure(name);
    }
    (dir, room)
}

fn kept(room: &Room) -> Vec<String> {
    let mut names = names(&room.root, ".git");
    names.sort();
    names
}

const fn bounds(total: u64, project: u64) -> SourceBounds {
    SourceBounds {
        total: total * MIB,
        project: project * MIB,
        git_memory: u64::MAX,
    }
}

#[test]
fn what_was_used_longest_ago_goes_first_and_what_a_job_uses_never() {
    let names = [("a", 3), ("b", 3), ("c", 3), ("d", 3)];
    let (_dir, room) = host(bounds(10, 10), &names);
    // The oldest is in use, and so is the one that asks.
    let _used = Lock::try_take(&room.mirror_lock("a")).unwrap().unwrap();
    room.settle("b");
    assert_eq!(kept(&room), ["a", "b", "d"]);
    assert!(!room.note("c").exists());
    // There is room: nothing goes.
    room.settle("b");
    assert_eq!(kept(&room), ["a", "b", "d"]);
}

#[tokio::test]
async fn a_repository_whose_objects_a_job_brings_stays() {
    let (_dir, room) = host(bounds(4, 4), &[("a", 3), ("b", 3)]);
    let using = Shared::take(&room.lfs_lock("a")).await.unwrap();
    // It is also the last that was used.
    let order: Vec<_> = room
        .repositories()
        .into_iter()
        .map(|one| one.name)
        .collect();
    assert_eq!(order, ["b", "a"]);
    assert!(!room.remove("a"));
    let others = Shared::take(&room.lfs_lock("a")).await.unwrap();
    drop(using);
    assert!(!room.remove("a"));
    drop(others);
    assert!(room.remove("a"));
    assert_eq!(kept(&room), ["b"]);
}

#[test]
fn one_that_is_larger_than_a_project_may_be_is_not_kept() {
    let (_dir, room) = host(bounds(100, 4), &[("a", 5), ("b", 3)]);
    room.settle("a");
    assert_eq!(kept(&room), ["b"]);
    room.settle("b");
    assert_eq!(kept(&room), ["b"]);
}

#[test]
fn a_projects_objects_make_room_for_its_own_and_those_wanted_stay() {
    let (_dir, room) = host(bounds(100, 8), &[("a", 3)]);
    let store = room.lfs("a").join("server");
    fs::create_dir_all(&store).unwrap();
    for (number, name) in ["x", "y", "z"].into_iter().enumerate() {
        let path = store.join(name);
        fs::write(&path, vec![1; usize::try_from(MIB).unwrap()]).unwrap();
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(number as u64);
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(at).unwrap();
    }
    let left = || {
        let all = room.objects("a").into_iter();
        all.map(|(_, _, path)| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    // A mirror of three and three objects: a little more fits.
    room.make_room_of_objects("a", MIB, |_| false);
    assert_eq!(left(), ["x", "y", "z"]);
    room.make_room_of_objects("a", 2 * MIB + MIB / 2, |path| path.ends_with("x"));
    assert_eq!(left(), ["x", "z"]);
}

#[test]
fn sizes_are_as_noted_or_looked_at() {
    let (_dir, room) = host(bounds(100, 100), &[("a", 2)]);
    let size = room.size("a");
    assert!((2 * MIB..3 * MIB).contains(&size.mirror) && size.lfs == 0);
    fs::write(room.note("a"), "5 7\n").unwrap();
    assert_eq!(room.size("a"), Size { mirror: 5, lfs: 7 });
    for nonsense in ["", "5", "a b"] {
        fs::write(room.note("a"), nonsense).unwrap();
        assert_eq!(room.size("a"), size, "{nonsense}");
    }
}

#[test]
fn bounds_come_from_the_disk_where_nothing_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let measured = SourceBounds::of_disk(dir.path(), None, None);
    assert_eq!(measured.project, measured.total / 2);
    assert!(measured.total > 0 && measured.total < u64::MAX);
    let said = SourceBounds::of_disk(dir.path(), Some(10), Some(20));
    assert_eq!((said.total, said.project), (10, 10));
    assert_eq!(said.git_memory(Some(5)).git_memory, 5);
    assert_eq!(said.git_memory(None), said);
    let nowhere = SourceBounds::of_disk(&dir.path().join("x"), None, Some(20));
    assert_eq!((nowhere.total, nowhere.project), (u64::MAX, 20));
}
