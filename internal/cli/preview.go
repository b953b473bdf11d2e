package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/schedule"
)

// maxPreview limits the number of slots. A year of minutes is below it.
const maxPreview = 1_000_000

// previewRequest is the flags of servo preview.
type previewRequest struct {
	cron, zone, after, anchor string
	every                     time.Duration
	count                     int
}

// newPreview lists the slots of a schedule, without a server.
func newPreview() *cobra.Command {
	var (
		request previewRequest
		form    output
	)
	cmd := &cobra.Command{
		Use:   "preview",
		Short: "Show the next slots of a schedule",
		Long: `Show the next slots of a schedule, by the rules of the server. No server is needed.

--cron takes five fields (minute, hour, day of month, month, day of week), a sixth in
front for seconds, @hourly, @daily, @weekly, @monthly, @yearly, "@every 90m", or the name
of a template: ` + templateNames() + `.

If the minute or the hour begins with *, the schedule follows elapsed time: it fires in both
passes of an hour that the clock repeats, and not in one that it skips. Any other one follows
the wall clock: a skipped time fires once, right after the gap, and a repeated one fires once, at
the first pass. The note marks these slots.

--every is elapsed time, counted from --anchor, or else from --after.

JSON and YAML are the list of instants in UTC.`,
		Example: `  servo preview --cron "30 2 * * 1-5" --tz Europe/Berlin --count 5
  servo preview --cron "0 0 L * *" --after 2026-01-01T00:00:00Z --output json
  servo preview --every 90m --anchor 2026-01-01T06:00:00Z`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, after, err := request.parse(cmd)
			if err != nil {
				return err
			}
			slots, _ := s.Slots(after, endOfPreview(), request.count)
			instants := make([]string, len(slots))
			for i, slot := range slots {
				instants[i] = slot.Format(time.RFC3339Nano)
			}
			location, err := schedule.Location(s.Zone())
			if err != nil {
				return err
			}
			return render(cmd.OutOrStdout(), form, instants, func(w io.Writer) { previewTable(w, s, slots, location) })
		},
	}
	cmd.Flags().StringVar(&request.cron, "cron", "", "cron expression")
	cmd.Flags().DurationVar(&request.every, "every", 0, "interval instead of an expression, such as 90m")
	cmd.Flags().StringVar(&request.anchor, "anchor", "", "first slot of an interval, such as 2026-01-31T06:00:00Z")
	cmd.Flags().StringVar(&request.zone, "tz", "UTC", "time zone, a name of the IANA database")
	cmd.Flags().StringVar(&request.after, "after", "", "time before the first slot, such as 2026-01-31T06:00:00Z (default now)")
	cmd.Flags().IntVar(&request.count, "count", 10, fmt.Sprintf("number of slots, at most %d", maxPreview))
	addOutput(cmd, &form)
	return cmd
}

// endOfPreview is after every slot.
func endOfPreview() time.Time { return time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC) }

// parse returns the schedule, and the instant after which its slots are listed.
func (r previewRequest) parse(cmd *cobra.Command) (*schedule.Schedule, time.Time, error) {
	every := cmd.Flags().Changed("every")
	switch {
	case every == cmd.Flags().Changed("cron"):
		return nil, time.Time{}, usageFault(cmd, "specify either --cron or --every")
	case r.anchor != "" && !every && !strings.HasPrefix(r.cron, "@every"):
		return nil, time.Time{}, usageFault(cmd, "--anchor is for --every, or for @every")
	}
	after, err := instantFlag("--after", r.after, time.Now())
	if err != nil {
		return nil, after, err
	}
	first := after
	if first.Unix() < 0 {
		first = time.Unix(0, 0) // there are no slots before
	}
	anchor, err := instantFlag("--anchor", r.anchor, first)
	if err != nil {
		return nil, after, err
	}
	if r.count < 1 || r.count > maxPreview {
		return nil, after, fault.New(fault.InvalidArgument, fmt.Sprintf("must be 1 to %d", maxPreview),
			fault.Field("--count"), fault.Remedy("write --count 10"))
	}
	trigger := schedule.Trigger{Kind: schedule.Cron, Cron: r.cron, Anchor: anchor}
	if every {
		trigger = schedule.Trigger{Kind: schedule.Interval, Interval: r.every, Anchor: anchor}
	} else if expression, ok := schedule.Resolve(r.cron); ok {
		trigger.Cron = expression
	}
	s, err := schedule.Parse(trigger, r.zone)
	if err != nil {
		return nil, after, previewFault(err)
	}
	return s, after, nil
}

// previewFault calls the fields of a trigger by the flags that they came from.
func previewFault(err error) error {
	f, ok := fault.As(err)
	if !ok {
		return err
	}
	flags := map[string]string{
		"trigger.cron": "--cron", "trigger.interval": "--every", "trigger.anchor": "--anchor", "timezone": "--tz",
	}
	if flag, ok := flags[f.Violation.Field]; ok {
		return fault.New(f.Code, f.Message, fault.Field(flag), fault.Remedy(f.Violation.Remedy), fault.Cause(err))
	}
	return err
}

// instantFlag reads an instant, or gives another if there is none.
func instantFlag(flag, text string, otherwise time.Time) (time.Time, error) {
	if text == "" {
		return otherwise, nil
	}
	instant, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fault.New(fault.InvalidArgument, fmt.Sprintf("%.64q is not an instant by RFC 3339", text),
			fault.Field(flag), fault.Remedy("write "+flag+" 2026-01-31T06:00:00Z"))
	}
	return instant, nil
}

func templateNames() string {
	var names []string
	for _, template := range schedule.Templates() {
		names = append(names, template.Name)
	}
	return strings.Join(names, ", ")
}

// previewTable has a line for each slot.
func previewTable(w io.Writer, s *schedule.Schedule, slots []time.Time, location *time.Location) {
	if len(slots) == 0 {
		fmt.Fprintln(w, "no more slots until the year 9999")
		return
	}
	fmt.Fprintln(w, "SLOT\tLOCAL\tNOTE")
	for _, slot := range slots {
		note := string(s.Shift(slot))
		if note == "" {
			note = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", slot.Format(time.RFC3339Nano), slot.In(location).Format("Mon 2006-01-02 15:04:05 -07:00"), note)
	}
}
