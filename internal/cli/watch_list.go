package cli

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

const (
	watchFlag  = "watch"
	watchEvery = 2 * time.Second
	// clearScreen moves a terminal's cursor to its first line and erases the rest.
	clearScreen = "\x1b[H\x1b[2J"
)

// addListWatch gives a list the flag --watch, once.
func addListWatch(cmd *cobra.Command) {
	if cmd.Flags().Lookup(watchFlag) != nil {
		return
	}
	cmd.Flags().Bool(watchFlag, false, "print the list again when it changes, every 2s, until interrupted")
}

// isWatched reports whether a list is printed repeatedly.
func isWatched(cmd *cobra.Command) bool {
	flag := cmd.Flags().Lookup(watchFlag)
	return flag != nil && flag.Value.String() == "true"
}

// repeat prints a list again whenever it changes, until it is interrupted: on a terminal in its
// place, elsewhere below it.
func (s *session) repeat(ctx context.Context, list func(ctx context.Context) error) error {
	out := s.cmd.OutOrStdout()
	var now bytes.Buffer
	s.cmd.SetOut(&now)
	defer s.cmd.SetOut(out)
	s.reportTo(func(text string) { fmt.Fprintln(&now, text) })
	ticks := time.NewTicker(watchEvery)
	defer ticks.Stop()
	last := ""
	for {
		now.Reset()
		err := list(ctx)
		if ctx.Err() != nil {
			return nil // an interrupt is how this ends
		}
		if err != nil {
			return err
		}
		if text := now.String(); text != last {
			before := ""
			if s.paint.terminal {
				before = clearScreen
			} else if last != "" {
				before = "\n"
			}
			if _, err := fmt.Fprint(out, before, text); err != nil {
				return wrote(err)
			}
			last = text
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}
