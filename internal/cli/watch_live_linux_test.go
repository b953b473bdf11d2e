package cli_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

// terminal is a pseudo-terminal of 100 × 30, and what is shown on it. After closed all of it
// was read.
func terminal(t *testing.T, wants string) (inside *os.File, screen *watched, closed func()) {
	t.Helper()
	outside, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	control := func(request uintptr, argument unsafe.Pointer) {
		_, _, failed := syscall.Syscall(syscall.SYS_IOCTL, outside.Fd(), request, uintptr(argument))
		require.Zero(t, failed)
	}
	unlocked, number := int32(0), uint32(0)
	control(syscall.TIOCSPTLCK, unsafe.Pointer(&unlocked))
	control(syscall.TIOCGPTN, unsafe.Pointer(&number))
	control(syscall.TIOCSWINSZ, unsafe.Pointer(&[4]uint16{30, 100}))
	inside, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	screen = watchFor(wants)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(screen, outside) // ends when the inside is closed
	}()
	closed = sync.OnceFunc(func() {
		_ = inside.Close()
		<-done
		_ = outside.Close()
	})
	t.Cleanup(closed)
	return inside, screen, closed
}

func TestWatchOnATerminal(t *testing.T) {
	t.Parallel()
	const hide, show = "\x1b[?25l", "\x1b[?25h"

	t.Run("the picture is redrawn in place, with progress, until the run ends", func(t *testing.T) {
		t.Parallel()
		server := servertest.Start(t)
		c, run := trigger(t, server.GRPC, "a/stuck", "a/after")
		begin(t, c)
		inside, screen, closed := terminal(t, "██████████░░░░░░░░░░  50%")
		stderr := watchFor("run")
		code := watching(t.Context(), server.GRPC, run, inside, stderr)
		<-screen.seen
		_, err := c.Runs().CancelRun(t.Context(), &servov1.CancelRunRequest{Tenant: "acme", Run: run})
		require.NoError(t, err)
		require.Equal(t, 3, code())
		closed()
		text := screen.String()
		require.Equal(t, 1, strings.Count(text, hide))
		require.True(t, strings.HasSuffix(text, show), "the cursor is back: %q", text)
		last := text[strings.LastIndex(text, "\x1b[J"):]
		require.Contains(t, last, "⊘ CANCELLED")
		require.Contains(t, last, "2 tasks: 2 cancelled")
		require.Contains(t, text, "\x1b[4A", "drawn over the picture before")
		require.Contains(t, stderr.String(), "is CANCELLED: 2 of 2 done: 2 cancelled")
	})

	t.Run("an interrupt gives the cursor back and leaves the run alone", func(t *testing.T) {
		t.Parallel()
		server := servertest.Start(t)
		_, run := trigger(t, server.GRPC, "a/one")
		inside, screen, closed := terminal(t, "a/one")
		stderr := watchFor("stopped")
		ctx, interrupt := context.WithCancel(t.Context())
		code := watching(ctx, server.GRPC, run, inside, stderr)
		<-screen.seen
		interrupt()
		require.Equal(t, 1, code())
		closed()
		require.True(t, strings.HasSuffix(screen.String(), show), "the cursor is back: %q", screen.String())
		require.Contains(t, stderr.String(), "stopped watching; the run continues")
	})
}
