package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build identifies the binary.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"` // of the revision
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersion() *cobra.Command {
	return newLocal(spec{use: "version", short: "Print the version"}, func(*cobra.Command, []string) (build, error) { return thisBuild(), nil },
		func(w io.Writer, b build) { fmt.Fprintln(w, b.text()) })
}

// text is the build on one line.
func (b build) text() string {
	revision := b.Revision
	if revision == "" {
		revision = "unknown revision"
	} else if b.Modified {
		revision += ", modified"
	}
	return fmt.Sprintf("servo %s (%s) %s %s", b.Version, revision, b.Go, b.Platform)
}

// thisBuild returns the build information that the Go tool wrote into the binary.
func thisBuild() build {
	b := build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.Revision = setting.Value
		case "vcs.time":
			b.Time = setting.Value
		case "vcs.modified":
			b.Modified = setting.Value == "true"
		}
	}
	return b
}
