package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/fault"
)

// Limits of token commands.
const (
	tokenPatience = 30 * time.Second
	maxTokenBytes = 16 << 10
)

// tokenFrom runs a shell command that prints a token. Its standard error is shown to the user.
func tokenFrom(ctx context.Context, command string, stderr io.Writer) (string, error) {
	refuse := func(message string, cause error) (string, error) {
		return "", fault.New(fault.Unauthenticated, message, fault.Field("token_command"), fault.Remedy("check that it prints a token and nothing else: "+command), fault.Cause(cause))
	}
	ctx, cancel := context.WithTimeout(ctx, tokenPatience)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "sh", "-c", command) //nolint:gosec // the owner of the context has written it
	cmd.Dir = environmentOf(ctx).Dir
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, stderr, time.Second
	err := cmd.Run()
	token := strings.TrimSpace(out.String())
	switch {
	case ctx.Err() != nil:
		return refuse(fmt.Sprintf("has not ended after %s", tokenPatience), ctx.Err())
	case err != nil:
		return refuse("has failed: "+err.Error(), err)
	case token == "":
		return refuse("has printed nothing", nil)
	case len(token) > maxTokenBytes || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return refuse("has printed an invalid token", nil)
	}
	return token, nil
}
