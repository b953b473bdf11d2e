package cli

import (
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
)

// logging is the log level and format of a command that runs for long.
type logging struct{ level, format string }

// addLogging gives a command the flags --log-level and --log-format.
func addLogging(cmd *cobra.Command, to *logging, level string) {
	cmd.Flags().StringVar(&to.level, "log-level", level, "log level: debug, info, warn or error")
	cmd.Flags().StringVar(&to.format, "log-format", "text", "log format: text or json")
}

// logger writes to w with the level and format of the flags.
func (l logging) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	switch strings.ToLower(l.level) {
	case "debug":
		level = slog.LevelDebug
	case "info":
		level = slog.LevelInfo
	case "warn":
		level = slog.LevelWarn
	case "error":
		level = slog.LevelError
	default:
		return nil, wordFault("--log-level", l.level, "debug", "info", "warn", "error")
	}
	options := &slog.HandlerOptions{Level: level}
	switch l.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, wordFault("--log-format", l.format, "text", "json")
}

// wordFault is about a flag that takes one of a few words.
func wordFault(flag, got string, words ...string) error {
	return fault.New(fault.InvalidArgument, fmt.Sprintf("unknown word %q%s", got, suggest.DidYouMean(got, words)),
		fault.Field(flag), fault.Remedy("use "+strings.Join(words, ", ")))
}
