package cli

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// logsEvery is the interval at which a follower reads more.
const logsEvery = time.Second

func newTasksLogs() *cobra.Command {
	var (
		attempt int32
		follow  bool
	)
	return newCall(ofRun(spec{
		use: "logs RUN TASK|ASSET", short: "Print the logs of a task",
		long: `Print the logs of the latest attempt of a task, or of the one that --attempt names. With
--follow continue until the task has ended, through its further attempts.`,
		example: `  servo tasks logs latest gold/revenue --follow
  servo tasks logs 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10 gold/revenue --attempt 1`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().Int32Var(&attempt, "attempt", 0, "number of the attempt (0: the latest)")
			cmd.Flags().BoolVar(&follow, "follow", false, "continue until the task has ended")
		},
	}), func(ctx context.Context, s *session) error {
		task, err := getTask(ctx, s)
		if err != nil {
			return err
		}
		l := &logReader{s: s, task: task, attempt: attempt, only: attempt > 0}
		if follow {
			return l.follow(ctx)
		}
		if !l.only {
			l.attempt = task.GetAttempt()
		}
		if l.attempt == 0 {
			s.report("no logs: the task is %s and has no attempt yet", task.GetState())
			return nil
		}
		if err := l.print(ctx, 0); err != nil {
			return err
		}
		if !l.printed {
			s.report("attempt %d has no logs", l.attempt)
		}
		return nil
	})
}

// logReader prints the logs of a task's attempts.
type logReader struct {
	s       *session
	task    *servov1.Task
	attempt int32 // that is read
	only    bool  // reads no other attempt
	printed bool
}

// follow prints one attempt after another until the task has ended.
func (l *logReader) follow(ctx context.Context) error {
	if !l.only {
		l.attempt = max(l.task.GetAttempt(), 1)
	}
	for {
		if l.task.GetAttempt() >= l.attempt {
			if err := l.print(ctx, logsEvery); err != nil {
				return err
			}
			if l.only {
				return nil
			}
			l.attempt++
		}
		task, err := l.s.client.Tasks().GetTask(ctx, &servov1.GetTaskRequest{Tenant: l.s.Tenant, Run: l.task.GetRun(), Task: l.task.GetId()})
		if err != nil {
			return err
		}
		l.task = task
		if task.GetAttempt() >= l.attempt {
			l.s.report("attempt %d", l.attempt)
			continue
		}
		if task.GetState() >= servov1.Task_SUCCEEDED {
			l.s.report("the task is %s", task.GetState())
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(logsEvery):
		}
	}
}

// print prints one attempt; with a pace until it has ended.
func (l *logReader) print(ctx context.Context, pace time.Duration) error {
	req := &servov1.ListTaskLogsRequest{Tenant: l.s.Tenant, Run: l.task.GetRun(), Task: l.task.GetId(), Attempt: l.attempt}
	dropped := int64(0)
	for page, err := range client.TaskLogs(ctx, l.s.client, req, pace) {
		if err != nil {
			return err
		}
		if more := page.GetDroppedBytes() - dropped; more > 0 {
			l.s.report("%d bytes are missing here: the log was truncated", more)
			dropped = page.GetDroppedBytes()
		}
		for _, chunk := range page.GetChunks() {
			l.printed = true
			if err := l.chunk(chunk); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *logReader) chunk(chunk *servov1.LogChunk) error {
	if !l.s.Form.forPeople() {
		value, err := toJSON(chunk)
		if err != nil {
			return err
		}
		return l.s.document(value)
	}
	text := chunk.GetText()
	if l.s.paint.terminal {
		text = harmless(text)
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	_, err := fmt.Fprint(l.s.cmd.OutOrStdout(), text)
	return wrote(err)
}

// harmless removes control characters, which could move a terminal's cursor or do worse.
func harmless(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}
