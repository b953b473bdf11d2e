package devpg

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// watcherScript outlives its parent by a moment. The kernel closes the parent's end of the
// pipe however the parent dies, kill -9 included, and `read` sees the end. A parent-death
// signal would not do: it follows the thread that forked, and Go ends threads as it likes.
//
// The lines it reads: "run PID" (this is to be stopped), "idle" (nothing is), "bye" (all is
// cleaned up). Its arguments are the directories to remove at the end. A zombie counts as
// gone: in a container it may never be reaped.
const watcherScript = `
trap '' HUP INT QUIT TERM
pid=
while read -r word value; do
	case $word in
	run) pid=$value ;;
	idle) pid= ;;
	bye) exit 0 ;;
	esac
done
alive() {
	kill -0 "$pid" 2>/dev/null || return 1
	if [ -r "/proc/$pid/stat" ]; then
		case $(cat "/proc/$pid/stat" 2>/dev/null) in *') Z '*) return 1 ;; esac
	fi
}
stop() {
	kill -s "$1" "$pid" 2>/dev/null
	left=$2
	while alive; do
		[ "$left" -gt 0 ] || return 1
		left=$((left - 1))
		sleep 0.1
	done
}
[ -z "$pid" ] || stop INT 100 || stop QUIT 60 || stop KILL 20
[ $# -gt 0 ] || exit 0
left=50
until rm -rf -- "$@" 2>/dev/null || [ "$left" -le 0 ]; do
	left=$((left - 1))
	sleep 0.1
done
`

// watcher is the small process that stops PostgreSQL when this one dies.
type watcher struct {
	cmd  *exec.Cmd
	pipe *os.File // our end; the kernel closes it for us when we are killed
}

// startWatcher starts it with the directories to remove if we die. It runs with our own
// rights, not the dropped ones, since those directories are ours.
func startWatcher(remove []string) (*watcher, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the watcher: %w", err)
	}
	defer reader.Close()                                                                      // the child has its own copy
	cmd := exec.Command("/bin/sh", append([]string{"-c", watcherScript, "sh"}, remove...)...) //nolint:gosec,noctx // it must outlive every context
	cmd.Dir = "/"
	cmd.Stdin = reader
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is for the parent
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the watcher: %w", err), writer.Close())
	}
	return &watcher{cmd: cmd, pipe: writer}, nil
}

// run names the process to stop.
func (w *watcher) run(pid int) error { return w.send(fmt.Sprintf("run %d", pid)) }

// idle reports that there is nothing to stop, because the pid may be reused.
func (w *watcher) idle() error { return w.send("idle") }

func (w *watcher) send(line string) error {
	if _, err := w.pipe.WriteString(line + "\n"); err != nil {
		return fmt.Errorf("write to the watcher: %w", err)
	}
	return nil
}

// dismiss ends the watcher, whose work is done, and waits for it.
func (w *watcher) dismiss() error {
	sendErr := w.send("bye")
	closeErr := w.pipe.Close()
	waitErr := w.cmd.Wait()
	return errors.Join(sendErr, closeErr, waitErr)
}
