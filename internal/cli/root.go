package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
	"go.arco.dev/servo/internal/worker/host"
)

// Main runs the command line in args, without the program's name, and returns the exit code.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 1 && args[0] == host.SupervisorCommand { // this binary starts itself, before anything else
		return host.Supervise(args[2:])
	}
	root := New(stdin, stdout, stderr) //nolint:contextcheck // commands get the context from cobra
	root.SetArgs(args)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if name, ok := unknownWord(cmd, args); ok { // the first of two mistakes is reported
			return unknownCommand(cmd, name)
		}
		return flagFault(cmd, err)
	})
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	printError(stderr, err)
	return exitCode(err)
}

// New returns the root command with all others below it.
func New(stdin io.Reader, stdout, stderr io.Writer) *cobra.Command {
	root := group("servo", "Servo runs data pipelines for many tenants on PostgreSQL",
		newAdmin(),
		newAlerts(),
		newSubscriptions(),
		newAssets(),
		newAudit(),
		newBackfills(),
		newBench(),
		newBuild(),
		newCanon(),
		newChannels(),
		newCompletion(),
		newConfigs(),
		newContext(),
		newDeploy(),
		newDeployments(),
		newDev(),
		newDoctor(),
		newEvents(),
		newExitCodes(),
		newFairness(),
		newFind(),
		newInit(),
		newKeys(),
		newLocks(),
		newLogin(),
		newMigrate(),
		newPipelines(),
		newPlan(),
		newPools(),
		newPreview(),
		newQuotas(),
		newReleases(),
		newRun(),
		newRuns(),
		newServer(),
		newSigningKeys(),
		newSimulate(),
		newSlots(),
		newStatus(),
		newTasks(),
		newTemplates(),
		newTenants(),
		newVersion(),
		newWhy(),
		newWorkerWithCheck(),
		newWorkers(),
		newWorkspaces(),
	)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SilenceErrors = true // printed once, by Main
	root.SilenceUsage = true  // an error is easier to see without a page of help below it
	root.SetFlagErrorFunc(flagFault)
	root.SetHelpCommand(newHelp())
	root.Version = thisBuild().text()
	root.SetVersionTemplate("{{.Version}}\n")
	root.InitDefaultVersionFlag()
	root.Flags().Lookup("version").Usage = "print the version"
	return root
}

// unknownWord returns the word after a group that names none of its commands. Flags around it are
// unknown to the group, so those before it are skipped by the definitions of its commands.
func unknownWord(cmd *cobra.Command, args []string) (string, bool) {
	if !cmd.HasSubCommands() {
		return "", false
	}
	_, rest, err := cmd.Root().Find(args)
	for err == nil && len(rest) > 0 {
		word := rest[0]
		if !strings.HasPrefix(word, "-") {
			return word, true
		}
		flag := childFlag(cmd, word)
		if flag == nil {
			break
		}
		rest = rest[1:]
		if flag.NoOptDefVal == "" && !strings.Contains(word, "=") && len(rest) > 0 {
			rest = rest[1:]
		}
	}
	return "", false
}

// childFlag returns the definition of a flag, such as -t or --tenant=acme, in a command of the group.
func childFlag(group *cobra.Command, word string) *pflag.Flag {
	name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
	for _, child := range group.Commands() {
		flag := child.Flags().Lookup(name)
		if len(name) == 1 {
			flag = child.Flags().ShorthandLookup(name)
		}
		if flag != nil {
			return flag
		}
	}
	return nil
}

// group builds a command that only contains others. Without one it shows its help; with
// one that does not exist it suggests a similar name.
func group(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:                   use,
		Short:                 short,
		DisableFlagsInUseLine: true,
		Args:                  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
	}
	cmd.AddCommand(children...)
	return cmd
}

// unknownCommand reports that a group has no command of that name.
func unknownCommand(cmd *cobra.Command, name string) error {
	var names []string
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			names = append(names, child.Name())
		}
	}
	return usageFault(cmd, fmt.Sprintf("unknown command %q%s", name, suggest.DidYouMean(name, names)))
}

// newHelp replaces cobra's command: it refuses unknown commands.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND...]",
		Short: "Show the help of a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil {
				return usageFault(cmd, err.Error())
			}
			if len(rest) > 0 {
				return unknownCommand(about, rest[0])
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// exactly requires a number of positional arguments.
func exactly(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		if n == 0 {
			return usageFault(cmd, fmt.Sprintf("takes no arguments, but got %q", args[0]))
		}
		return usageFault(cmd, fmt.Sprintf("takes %s, not %d", count(n, "argument"), len(args)))
	}
}

// usageFault is about the command line itself.
func usageFault(cmd *cobra.Command, message string) error {
	return fault.New(fault.InvalidArgument, message, fault.Remedy("see "+cmd.CommandPath()+" --help"))
}

// flagFault is about a flag.
func flagFault(cmd *cobra.Command, err error) error {
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return usageFault(cmd, badValue(wrong))
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return usageFault(cmd, err.Error())
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	name := "--" + unknown.GetSpecifiedName()
	return usageFault(cmd, "unknown flag "+name+suggest.DidYouMean(name, names))
}

// badValue describes the values that a flag takes. Types of this package describe themselves; the
// messages of Go's parsers are for programmers.
func badValue(wrong *pflag.InvalidValueError) string {
	var takes string
	switch kind := wrong.GetFlag().Value.Type(); {
	case kind == "bool":
		takes = "true or false"
	case kind == "duration":
		takes = "a duration such as 90s or 1h30m"
	case strings.HasPrefix(kind, "float"):
		takes = "a number"
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"), kind == "count":
		takes = "a whole number"
		if errors.Is(wrong, strconv.ErrRange) || strings.Trim(wrong.GetValue(), "-0123456789") == "" && wrong.GetValue() != "" {
			takes = "a smaller number"
		}
	default:
		return fmt.Sprintf("--%s: %v", wrong.GetFlag().Name, errors.Unwrap(wrong))
	}
	return fmt.Sprintf("--%s takes %s, not %.64q", wrong.GetFlag().Name, takes, wrong.GetValue())
}

// printError prints each violation of a fault on a line of its own. An error that is no
// fault has only its text.
func printError(w io.Writer, err error) {
	if err.Error() == "" {
		return // nothing to print
	}
	var text strings.Builder
	f, ok := fault.As(err)
	if !ok {
		fmt.Fprintf(&text, "error: %v\n", err)
	} else {
		for _, v := range f.Violations() {
			text.WriteString("error: ")
			if v.Field != "" {
				text.WriteString(v.Field + ": ")
			}
			text.WriteString(v.Message)
			if v.Remedy != "" {
				text.WriteString(" (" + v.Remedy + ")")
			}
			fmt.Fprintf(&text, " [%s]\n", v.Code)
		}
	}
	_, _ = io.WriteString(w, text.String()) // there is no other place to report it
}
