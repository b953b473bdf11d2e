package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
)

func newRunsWatch() *cobra.Command {
	return newCall(ofRun(spec{
		use: "watch RUN", short: "Watch a run until it has ended", example: `  servo runs watch latest`,
		long: `Watch a run until it has ended: on a terminal as a list of its tasks that is kept up to
date, elsewhere as a line for each event. With --output json each event is a JSON document
on a line of its own, and the last one is the run as it ended.

Exits with 0 if the run has succeeded, with 3 if it ended otherwise. Ctrl-C stops watching;
the run continues.`,
	}), func(ctx context.Context, s *session) error {
		run, err := s.findRun(ctx, s.args[0])
		if err != nil {
			return err
		}
		return s.watch(ctx, run, true)
	})
}

// watcher shows the events of a watch. end is called once, with the run as it ended, or with nil
// if the watch was interrupted.
type watcher interface {
	event(e *servov1.Event) error
	end(r *servov1.Run) error
}

// watch shows a run to its end. With events false only the run as it ended is shown.
func (s *session) watch(ctx context.Context, run string, events bool) error {
	var to watcher
	switch {
	case !events:
		to = onlyEnd{s}
	case !s.Form.forPeople():
		to = documents{s}
	case s.paint.terminal:
		to = newLive(ctx, s, run)
	default:
		to = &lines{out: s.cmd.OutOrStdout(), board: newBoard()}
	}
	ended, err := follow(ctx, s.client, s.Tenant, run, to)
	if ended != nil {
		return outcome(ended, s.again())
	}
	if ctx.Err() != nil {
		s.reportTo(func(text string) { fmt.Fprintln(s.cmd.ErrOrStderr(), text) })
		s.report("stopped watching; the run continues: servo runs watch %s%s", run, s.again())
		return withExit(exitFailed, nil)
	}
	return err
}

// follow feeds a watcher. It returns the run if it has ended and was shown.
func follow(ctx context.Context, c *client.Client, tenant, run string, to watcher) (*servov1.Run, error) {
	for message, err := range client.WatchRun(ctx, c, &servov1.WatchRunRequest{Tenant: tenant, Run: run}) {
		if err == nil && message.GetEvent() != nil {
			err = to.event(message.GetEvent())
		}
		if err != nil {
			return nil, errors.Join(err, to.end(nil))
		}
		if message.GetEnd() != nil {
			return message.GetEnd(), to.end(message.GetEnd())
		}
	}
	return nil, to.end(nil)
}

// outcome returns the error of a command that has waited for a run.
func outcome(r *servov1.Run, again string) error {
	if r.GetState() == servov1.Run_SUCCEEDED {
		return nil
	}
	return withExit(exitNotSucceeded, fmt.Errorf("run %s is %s: %s; see servo runs get %s%s",
		r.GetId(), r.GetState(), countsText(r.GetTasks()), r.GetId(), again))
}

// lines is for pipes and logs: a line for each event, in UTC.
type lines struct {
	out   io.Writer
	board *board
}

func (l *lines) event(e *servov1.Event) error {
	_, err := fmt.Fprintf(l.out, "%s %s\n", e.GetRecordedAt().AsTime().Format("15:04:05"), l.board.apply(e))
	return wrote(err)
}

func (l *lines) end(*servov1.Run) error { return nil }

// documents is for programs.
type documents struct{ s *session }

func (d documents) event(e *servov1.Event) error {
	value, err := toJSON(e)
	if err != nil {
		return err
	}
	return d.s.document(value)
}

func (d documents) end(r *servov1.Run) error {
	if r == nil {
		return nil
	}
	value, err := toJSON(r)
	if err != nil {
		return err
	}
	return d.s.document(value)
}

// document prints one value of several: JSON on one line, or a YAML document.
func (s *session) document(value json.RawMessage) error {
	out := s.cmd.OutOrStdout()
	if s.Form == outputYAML {
		if _, err := fmt.Fprintln(out, "---"); err != nil {
			return wrote(err)
		}
		return render(out, s.Form, value, nil)
	}
	return wrote(json.NewEncoder(out).Encode(value)) // which removes the spaces
}

// onlyEnd is for programs: it shows the run as it ended.
type onlyEnd struct{ s *session }

func (o onlyEnd) event(*servov1.Event) error { return nil }

func (o onlyEnd) end(r *servov1.Run) error {
	if r == nil {
		return nil
	}
	return o.s.show(r, func(w io.Writer) { fmt.Fprintf(w, "run %s is %s\n", r.GetId(), r.GetState()) })
}
