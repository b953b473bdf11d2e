package client

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"pgregory.net/rapid"
)

func TestRepeatsOfEveryCall(t *testing.T) {
	t.Parallel()
	known := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("servo.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				method := methods.Get(j)
				known++
				kind := repeats("/" + string(method.Parent().FullName()) + "/" + string(method.Name()))
				require.NotEqual(t, repeatNever, kind, "decide what a repeat of %s does", method.FullName())
				require.Equal(t, method.IsStreamingServer(), kind == repeatResume, method.FullName())
			}
		}
		return true
	})
	require.Greater(t, known, 30)
}

func TestDelay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		attempt := rapid.IntRange(1, 100).Draw(t, "attempt")
		wait := delay(attempt, &Problem{Code: Unavailable})
		require.LessOrEqual(t, wait, retryMax)
		require.GreaterOrEqual(t, wait, retryBase/2)
		asked := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "asked"))
		require.GreaterOrEqual(t, delay(attempt, &Problem{Code: Unavailable, RetryAfter: asked}), asked, "never before the server wants it")
	})
}
