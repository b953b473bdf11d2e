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

// logsEvery is how often a follower asks for more.
const logsEvery = time.Second

func newTasksLogs() *cobra.Command {
	var (
		r       remote
		attempt int32
		follow  bool
	)
	cmd := &cobra.Command{
		Use:   "logs RUN TASK|ASSET",
		Short: "Print what a task has logged",
		Long: `Print what the latest attempt of a task has logged, or the one that --attempt names. With
--follow go on until the task has ended, over its further attempts too.`,
		Example: `  servo tasks logs latest gold/revenue --follow
  servo tasks logs 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10 gold/revenue --attempt 1`,
		Args: exactly(2),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			task, err := s.taskArgument(ctx, args)
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
				s.say("nothing is logged: the task is %s and nobody has begun it", task.GetState())
				return nil
			}
			if err := l.print(ctx, 0); err != nil {
				return err
			}
			if !l.printed {
				s.say("attempt %d has logged nothing", l.attempt)
			}
			return nil
		}),
	}
	cmd.Flags().Int32Var(&attempt, "attempt", 0, "which attempt (0: the latest)")
	cmd.Flags().BoolVar(&follow, "follow", false, "go on until the task has ended")
	aboutRun(cmd)
	addRemote(cmd, &r)
	addTenant(cmd, &r)
	return cmd
}

// logReader prints the logs of a task's attempts.
type logReader struct {
	s       *session
	task    *servov1.Task
	attempt int32 // the one being read
	only    bool  // and no other
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
			l.s.say("attempt %d", l.attempt)
			continue
		}
		if task.GetState() >= servov1.Task_SUCCEEDED {
			l.s.say("the task is %s", task.GetState())
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(logsEvery):
		}
	}
}

// print prints one attempt; with a pace until it is over.
func (l *logReader) print(ctx context.Context, pace time.Duration) error {
	req := &servov1.ListTaskLogsRequest{Tenant: l.s.Tenant, Run: l.task.GetRun(), Task: l.task.GetId(), Attempt: l.attempt}
	dropped := int64(0)
	for page, err := range client.TaskLogs(ctx, l.s.client, req, pace) {
		if err != nil {
			return err
		}
		if more := page.GetDroppedBytes() - dropped; more > 0 {
			l.s.say("%d bytes in between were not kept", more)
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

// harmless takes out of lines what would move a terminal's cursor or do worse.
func harmless(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}
