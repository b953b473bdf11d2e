// Package lives runs servers of a test as separate processes, which the test kills and restarts. The
// process is the test binary itself; a variable selects its role. It is for tests only.
package lives

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// Cast is the processes, by their places.
type Cast struct {
	Kills int

	variable string
	config   func(name string) any
	lives    int
	places   []*process
}

type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
	gone  chan struct{}
}

// New creates a cast with a number of places. A process finds its config as JSON in the variable.
func New(places int, variable string, config func(name string) any) *Cast {
	return &Cast{variable: variable, config: config, places: make([]*process, places)}
}

// Play runs a process: it reads its options, calls run, and reports with ready that it works. The
// context ends with the standard input, so that no process outlives the test.
func Play[C any](text string, run func(ctx context.Context, config C, ready func()) error) int {
	var config C
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := run(ctx, config, func() { fmt.Fprintln(os.Stdout, "ready") }); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Places is how many there are.
func (c *Cast) Places() int { return len(c.places) }

// Name is what the process of a place is called.
func (c *Cast) Name(place int) string { return c.places[place].name }

// Start begins a life in a place and waits until the process is ready.
func (c *Cast) Start(ctx context.Context, place int) error {
	c.lives++
	name := fmt.Sprintf("s%d-%d", place, c.lives)
	text, err := json.Marshal(c.config(name))
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program) //nolint:gosec // the test itself
	cmd.Env = append(os.Environ(), c.variable+"="+string(text))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &process{name: name, cmd: cmd, stdin: stdin, gone: make(chan struct{})}
	c.places[place] = p
	_, err = bufio.NewReader(stdout).ReadString('\n')
	go func() {
		_ = cmd.Wait()
		close(p.gone)
	}()
	return err
}

// Kill ends a process as a crash would.
func (c *Cast) Kill(place int) {
	c.Kills++
	_ = c.places[place].cmd.Process.Kill()
	<-c.places[place].gone
}

// End lets all of them end.
func (c *Cast) End() {
	for _, p := range c.places {
		if p != nil {
			_ = p.stdin.Close()
		}
	}
	for _, p := range c.places {
		if p == nil {
			continue
		}
		select {
		case <-p.gone:
		case <-time.After(30 * time.Second):
			_ = p.cmd.Process.Kill()
			<-p.gone
		}
	}
}
