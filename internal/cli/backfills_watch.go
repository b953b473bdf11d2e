package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// backfillEvery is how often the progress of a backfill is read.
const backfillEvery = time.Second

func newBackfillWatch() *cobra.Command {
	return newCall(ofBackfill(spec{
		use: "watch BACKFILL", short: "Watch a backfill until it has ended",
		long: `Watch a backfill until it has ended: on a terminal as a progress bar that is kept up to date,
elsewhere as a line for each change. Exits with 0 if it has succeeded, with 3 if it ended otherwise.
Ctrl-C stops watching; the backfill continues.`,
	}), func(ctx context.Context, s *session) error {
		b, err := s.findBackfill(ctx, s.args[0])
		if err != nil {
			return err
		}
		return s.watchBackfill(ctx, b.GetWorkspace(), b.GetId())
	})
}

// watchBackfill shows a backfill to its end.
func (s *session) watchBackfill(ctx context.Context, workspace, backfill string) error {
	out := s.cmd.OutOrStdout()
	last := int32(-1)
	var lines int
	for {
		b, err := s.client.Backfills().GetBackfill(ctx, &servov1.GetBackfillRequest{Tenant: s.Tenant, Workspace: workspace, Backfill: backfill})
		switch {
		case ctx.Err() != nil:
			fmt.Fprintf(s.cmd.ErrOrStderr(), "stopped watching; the backfill continues: servo backfill watch %s%s\n", backfill, s.again())
			return withExit(exitFailed, nil)
		case err != nil:
			return err
		}
		ended := b.GetFinishedAt() != nil && b.GetOpenRuns() == 0
		if b.GetVersion() != last && (s.Form.forPeople() || ended) {
			if lines, err = s.drawBackfill(out, b, lines); err != nil {
				return err
			}
			last = b.GetVersion()
		}
		if ended {
			if b.GetState() != servov1.Backfill_SUCCEEDED {
				return withExit(exitNotSucceeded, nil)
			}
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(backfillEvery):
		}
	}
}

// drawBackfill prints a backfill: on a terminal in the place of the picture before.
func (s *session) drawBackfill(out io.Writer, b *servov1.Backfill, before int) (lines int, err error) {
	if !s.Form.forPeople() {
		return 0, s.show(b, nil)
	}
	text := fmt.Sprintf("%s  %s  %d of %d runs started, %d running", s.paint.state(b.GetState().String()), backfillProgress(b), b.GetStartedRuns(), b.GetRuns(), b.GetOpenRuns())
	if b.GetWaitsFor() != "" {
		text += "  waits: " + clip(b.GetWaitsFor(), 100)
	}
	if b.GetReason() != "" {
		text += "  " + clip(b.GetReason(), 100)
	}
	if s.paint.terminal && before > 0 {
		text = fmt.Sprintf("\x1b[%dA\r%s%s", before, clearBelow, text)
	}
	_, err = fmt.Fprintln(out, text)
	return 1, wrote(err)
}
