// Drops a JSON request and prints the outcome: go run submit.go request.json [ROOT]
package main

import (
	"fmt"
	"os"
	"time"
)

func main() {
	file, handoffs := os.Args[1], append(os.Args, ".")[2]+"/handoffs/"
	name := fmt.Sprintf("go-%d-%d.json", time.Now().UnixNano(), os.Getpid())
	temporary := handoffs + "pending/." + name + ".tmp" // a name that the daemon leaves alone
	request, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(temporary, request, 0o644)
	}
	if err != nil || os.Rename(temporary, handoffs+"pending/"+name) != nil {
		panic(fmt.Sprint("the request could not be dropped: ", err))
	}
	for ; ; time.Sleep(200 * time.Millisecond) {
		for code, state := range []string{"completed/", "failed/"} { // the folder is the state
			if record, err := os.ReadFile(handoffs + state + name); err == nil {
				fmt.Print(string(record))
				os.Exit(code)
			}
		}
	}
}
