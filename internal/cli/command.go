package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"go.arco.dev/servo/internal/store"
)

// spec describes a command that calls a server: its texts, flags and completion. The number of
// arguments follows from use.
type spec struct {
	use, short, long, example string

	tenant    bool   // the command is about a tenant
	platform  string // usage of --platform, for a command about a tenant or the installation
	limit     string // plural noun of a list with --limit
	unlimited bool   // --limit is 0 by default
	version   string // noun of the object that --version is about
	reason    bool   // --reason is recorded with the change
	names     []nameSource
	flags     func(cmd *cobra.Command)
	check     func(s *session) error // checks flags before a server is called
}

// view is how a table is printed.
type view struct {
	paint palette
	now   time.Time
	wide  bool
}

// newCall builds a command that does something with a server. do finds the arguments in s.args and
// the tenant in s.Tenant, which is "" for the installation.
func newCall(c spec, do func(ctx context.Context, s *session) error) *cobra.Command {
	cmd := &cobra.Command{Use: c.use, Short: c.short, Long: c.long, Example: c.example, Args: exactly(argumentsIn(c.use))}
	if len(c.names) > 0 {
		cmd.ValidArgsFunction = completion(c.names...)
	}
	var (
		platform bool
		limit    int
		version  int32
		reason   string
	)
	if c.limit != "" {
		few := 20
		if c.unlimited {
			few = 0
		}
		cmd.Flags().IntVar(&limit, "limit", few, "maximum number of "+c.limit+" (0: all)")
		addListWatch(cmd)
	}
	if c.flags != nil {
		c.flags(cmd)
	}
	if c.version != "" {
		cmd.Flags().Int32Var(&version, "version", 0, "required version of the "+c.version+" (0: any)")
	}
	if c.reason {
		cmd.Flags().StringVar(&reason, "reason", "", "reason for the change, recorded with it")
	}
	addRemote(cmd)
	if c.tenant || c.platform != "" {
		addTenant(cmd)
	}
	if c.platform != "" {
		cmd.Flags().BoolVar(&platform, "platform", false, c.platform)
		cmd.MarkFlagsMutuallyExclusive("platform", "tenant")
	}
	cmd.RunE = run(func(ctx context.Context, s *session) error {
		s.limit, s.version, s.reason = limit, version, reason
		if c.check != nil {
			if err := c.check(s); err != nil {
				return err
			}
		}
		switch {
		case platform:
			s.Tenant = ""
		case c.tenant || c.platform != "":
			if _, err := s.requireTenant(ctx); err != nil {
				return err
			}
		}
		return do(ctx, s)
	})
	return cmd
}

// argumentsIn counts the arguments that a usage line names before its flags.
func argumentsIn(use string) (n int) {
	for _, word := range strings.Fields(use)[1:] {
		if strings.HasPrefix(strings.TrimPrefix(word, "["), "-") {
			break
		}
		n++
	}
	return n
}

// newShow builds a command that makes one call and prints its answer.
func newShow[M proto.Message](c spec, call func(ctx context.Context, s *session) (M, error), text func(w io.Writer, s *session, m M)) *cobra.Command {
	return newCall(c, func(ctx context.Context, s *session) error {
		m, err := call(ctx, s)
		if err != nil {
			return err
		}
		return s.show(m, func(w io.Writer) { text(w, s, m) })
	})
}

// newList builds a command that prints a list, or for people the text none if it is empty.
func newList[M proto.Message](c spec, none string, items func(ctx context.Context, s *session) ([]M, error), table func(w io.Writer, v view, items []M)) *cobra.Command {
	if c.use == "" {
		c.use = "list"
	}
	return newCall(c, func(ctx context.Context, s *session) error {
		found, err := items(ctx, s)
		if err != nil {
			return err
		}
		return showAll(s, found, none, func(w io.Writer) { table(w, s.view(), found) })
	})
}

// newDelete builds a command that deletes what its argument names.
func newDelete[M proto.Message](noun string, c spec, call func(ctx context.Context, s *session) (M, error)) *cobra.Command {
	if c.use == "" {
		c.use = "delete NAME"
	}
	return newShow(c, call, func(w io.Writer, s *session, _ M) { fmt.Fprintf(w, "%s %s deleted\n", noun, clean(s.args[0])) })
}

// newLocal builds a command without a server, which computes a value and prints it.
func newLocal[T any](c spec, do func(cmd *cobra.Command, args []string) (T, error), text func(w io.Writer, value T)) *cobra.Command {
	cmd := &cobra.Command{Use: c.use, Short: c.short, Long: c.long, Example: c.example, Args: exactly(argumentsIn(c.use))}
	if c.flags != nil {
		c.flags(cmd)
	}
	var form output
	addOutput(cmd, &form)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		value, err := do(cmd, args)
		if err != nil {
			return err
		}
		return render(cmd.OutOrStdout(), form, value, func(w io.Writer) { text(w, value) })
	}
	return cmd
}

// newOnDatabase builds a command on the database of --database, which open connects to.
func newOnDatabase[T any](c spec, open func(ctx context.Context, url string) (*store.Store, error),
	do func(ctx context.Context, s *store.Store, args []string) (T, error), text func(w io.Writer, value T),
) *cobra.Command {
	var database string
	cmd := newLocal(c, func(cmd *cobra.Command, args []string) (value T, err error) {
		s, err := open(cmd.Context(), database)
		if err != nil {
			return value, err
		}
		defer s.Close()
		return do(cmd.Context(), s, args)
	}, text)
	addDatabase(cmd, &database)
	return cmd
}

// columns prints items as a table with these heads, a row for each.
func columns[M any](heads []string, row func(v view, m M) []string) func(w io.Writer, v view, items []M) {
	return func(w io.Writer, v view, items []M) {
		t := table{rows: [][]string{heads}}
		for _, m := range items {
			t.add(row(v, m)...)
		}
		t.print(w)
	}
}

func (s *session) view() view {
	return view{paint: s.paint, now: time.Now(), wide: s.Form == outputWide}
}
