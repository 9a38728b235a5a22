//! A Debian host in a VM, as its administrator has it before them: scripts are run in it by root.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::cpio::archive;

/// How long the host may take to start, to run one script and to power off: it is emulated, beside
/// others that need the same processors.
const PATIENCE: Duration = Duration::from_secs(900);
/// The exit code of a script that waits for what will not be.
const NEVER: i32 = 90;
/// Programs of the host, beyond what there is of them.
const PROGRAMS_ROOM: u64 = 64 << 20;

/// The folder of built programs, or `None`, said aloud, where the test is not to run.
pub(crate) fn test_root(test: &str) -> Option<PathBuf> {
    let root = std::env::var_os("VK_TEST_ROOT").map(PathBuf::from);
    if root.is_none() {
        println!("{test}: needs the built programs: VK_TEST_ROOT is not set");
    }
    if std::env::var_os("VK_LONG").is_none() {
        println!("{test}: an emulated host for minutes, with VK_LONG alone");
        return None;
    }
    root
}

/// The host.
pub(crate) struct Host {
    qemu: Child,
    desk: BufReader<UnixStream>,
    began: Instant,
    directory: tempfile::TempDir,
}

impl Host {
    /// Boots one; returns once systemd has come up.
    pub(crate) fn boot(root: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let image = root_disk(root, at);
        programs_disk(&root.join("bin-process"), &at.join("programs"));
        fs::write(at.join("initramfs"), initramfs(root)).unwrap();
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args(["-nodefaults", "-nographic", "-no-reboot", "-cpu", "max"])
            .args(["-M", "microvm,accel=tcg", "-m", "3G", "-smp", "2"])
            .arg("-kernel")
            .arg(root.join("guest/kernel"))
            .args(["-initrd", "initramfs", "-append", &command_line(root)])
            .args(["-chardev", "file,id=console,path=console"])
            .args(["-serial", "chardev:console", "-chardev"])
            .arg("socket,id=desk,path=desk,server=on,wait=off")
            .args(["-device", "isa-serial,chardev=desk,index=1"]);
        for (name, file) in [
            ("root", image.as_path()),
            ("programs", Path::new("programs")),
        ] {
            let file = file.display();
            qemu.arg("-drive");
            qemu.arg(format!(
                "if=none,id={name},file={file},format=raw,readonly=on"
            ));
            qemu.args(["-device", &format!("virtio-blk-device,drive={name}")]);
        }
        qemu.current_dir(at).stdin(Stdio::null());
        qemu.stderr(File::create(at.join("qemu.log")).unwrap());
        let began = Instant::now();
        let mut qemu = qemu.spawn().unwrap();
        let desk = dial(&at.join("desk"), &mut qemu);
        let mut host = Self {
            qemu,
            desk: BufReader::new(desk),
            began,
            directory,
        };
        assert_eq!(host.answer(), "ready\n");
        host.note("is up");
        host
    }

    /// Says what has come to pass, and when.
    pub(crate) fn note(&self, what: &str) {
        println!("{:>6.1} s: {what}", self.began.elapsed().as_secs_f64());
    }

    /// Runs a script as root to its end; what it said, whether or not it went well.
    pub(crate) fn ask(&mut self, script: &str) -> (i32, String) {
        self.say(script);
        let answer = self.answer();
        let (code, said) = answer.trim_end().split_once(' ').unwrap();
        let said = String::from_utf8(STANDARD.decode(said).unwrap()).unwrap();
        (code.parse().unwrap(), said.trim_end().to_owned())
    }

    /// The same of a script that must go well.
    pub(crate) fn run(&mut self, script: &str) -> String {
        let (code, said) = self.ask(script);
        assert_eq!(code, 0, "{script}: {said}");
        said
    }

    /// Asks again and again until a script goes well; what it said then. One that ends with
    /// [`NEVER`] has nothing to wait for.
    pub(crate) fn until(&mut self, what: &str, script: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let (code, said) = self.ask(script);
            if code == 0 {
                self.note(what);
                return said;
            }
            assert!(
                Instant::now() < end && code != NEVER,
                "not within {PATIENCE:?}: {what}: {said}"
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Ends it as an administrator does, and waits for that.
    pub(crate) fn power_off(mut self) {
        // Whoever runs it is stopped as well, and may answer no more.
        self.say("systemctl poweroff");
        let end = Instant::now() + PATIENCE;
        let ended = loop {
            if let Some(ended) = self.qemu.try_wait().unwrap() {
                break ended;
            }
            assert!(Instant::now() < end, "it does not power off");
            std::thread::sleep(Duration::from_millis(50));
        };
        assert!(ended.success(), "{ended}");
        self.note("is off");
    }

    fn say(&mut self, script: &str) {
        let line = STANDARD.encode(script) + "\n";
        self.desk.get_mut().write_all(line.as_bytes()).unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.desk.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "the host is gone: {line:?}");
        line
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
        if std::thread::panicking() {
            for name in ["qemu.log", "console"] {
                let text = fs::read(self.directory.path().join(name)).unwrap_or_default();
                println!("{name}:\n{}", String::from_utf8_lossy(&text));
            }
        }
    }
}

fn command_line(root: &Path) -> String {
    let counter = counter(root);
    format!(
        "console=ttyS0 quiet reboot=t panic=-1 cryptomgr.notests=1 rdinit=/host-init {counter} \
         tsc=reliable systemd.log_target=console systemd.journald.forward_to_console=1"
    )
}

/// A busy host's guest cannot measure its clock by itself: what guests of jobs are told here.
fn counter(root: &Path) -> String {
    const KEY: &[u8] = b"tsc_early_khz=";
    let mut boot = Command::new(root.join("bin/vk"));
    boot.args(["guest", "boot", "--accelerator", "tcg", "--bundle"]);
    boot.arg(root.join("guest")).stdout(Stdio::null());
    let mut boot = boot.spawn().unwrap();
    let told = loop {
        let lines = fs::read_dir("/proc").unwrap().flatten();
        let lines = lines.filter_map(|of| fs::read(of.path().join("cmdline")).ok());
        let told = lines.filter_map(|line| {
            let words = line.split(|byte| *byte == b' ' || *byte == 0);
            let word = words.into_iter().find(|word| word.starts_with(KEY))?;
            String::from_utf8(word.to_owned()).ok()
        });
        if let Some(told) = told.into_iter().next() {
            break told;
        }
        let ended = boot.try_wait().unwrap();
        assert!(ended.is_none(), "no guest was seen: {ended:?}");
        std::thread::sleep(Duration::from_millis(10));
    };
    boot.wait().unwrap();
    told
}

/// The image of its root, as the node makes images.
fn root_disk(root: &Path, at: &Path) -> PathBuf {
    let state = at.join("image");
    let mut import = Command::new(root.join("bin-process/vk"));
    import.args(["image", "import", "--state-dir"]);
    finish(
        import
            .arg(&state)
            .arg(root.join("images/systemd.tar"))
            .arg("systemd"),
    );
    let mut images = fs::read_dir(state.join("images/images")).unwrap();
    images.next().unwrap().unwrap().path().join("image.erofs")
}

fn programs_disk(programs: &Path, disk: &Path) {
    let entries = fs::read_dir(programs).unwrap();
    let sizes = entries.map(|entry| entry.unwrap().metadata().unwrap().len());
    let bytes = sizes.sum::<u64>() * 9 / 8 + PROGRAMS_ROOM;
    File::create(disk).unwrap().set_len(bytes).unwrap();
    let mut make = Command::new("mke2fs");
    make.args(["-q", "-F", "-t", "ext4", "-O", "^has_journal"]);
    let places = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"];
    make.env("PATH", places.join(":"));
    finish(make.arg("-d").arg(programs).arg(disk));
}

/// The bundle's, with the modules, and behind it what makes a host of it.
fn initramfs(root: &Path) -> Vec<u8> {
    let jobs_image = fs::read(root.join("images/busybox.tar")).unwrap();
    let busybox = of_tar(&jobs_image, "bin/busybox");
    let mut whole = fs::read(root.join("guest/initramfs")).unwrap();
    whole.resize(whole.len().next_multiple_of(4), 0);
    let files: [(&str, &[u8]); 5] = [
        ("bin/busybox", &busybox),
        ("host-init", include_bytes!("init.sh")),
        ("test/desk.sh", include_bytes!("desk.sh")),
        ("test/desk.service", include_bytes!("desk.service")),
        ("test/busybox.tar", &jobs_image),
    ];
    whole.extend(archive(&["bin", "test"], &files));
    whole
}

fn of_tar(tar: &[u8], name: &str) -> Vec<u8> {
    let mut tar = tar::Archive::new(tar);
    let mut entries = tar.entries().unwrap().map(Result::unwrap);
    let of_name = |entry: &tar::Entry<'_, &[u8]>| entry.path().unwrap().ends_with(name);
    let mut bytes = Vec::new();
    let mut entry = entries.find(of_name).unwrap();
    entry.read_to_end(&mut bytes).unwrap();
    bytes
}

fn dial(desk: &Path, qemu: &mut Child) -> UnixStream {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Ok(stream) = UnixStream::connect(desk) {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            return stream;
        }
        let ended = qemu.try_wait().unwrap();
        assert!(ended.is_none() && Instant::now() < end, "qemu: {ended:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn finish(command: &mut Command) {
    let ran = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{command:?}: {said}");
}
